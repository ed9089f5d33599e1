// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <random>
#include <system_error>

#include "benchmarks/dsv4-bench/synthetic_folder.h"
#include "examples/console/failure.h"

namespace bench {

namespace fs = std::filesystem;

// The user's own folder of temporary files.
std::string NewFolder() {
  std::error_code error;
  const std::string stem = fs::temp_directory_path(error).generic_string() + "/dsv4-bench-";
  std::random_device random;
  for (int attempt = 0; attempt < 100 && !error; ++attempt) {
    std::string path = stem + std::to_string(random());
    if (fs::create_directory(path, error)) return path;
  }
  throw chat::Failure{chat::kRunTimeError, stem + ": cannot make a folder"};
}

// Links need rights that users do not have.
void PutFile(const std::string& file, const std::string& as) { fs::copy_file(file, as); }

}  // namespace bench
