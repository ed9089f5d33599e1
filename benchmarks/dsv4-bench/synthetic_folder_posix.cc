// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "benchmarks/dsv4-bench/synthetic_folder.h"
#include "examples/console/failure.h"

namespace bench {

namespace fs = std::filesystem;
using chat::Failure;

std::string NewFolder() {
  std::error_code error;
  std::string path = (fs::temp_directory_path(error) / "dsv4-bench-XXXXXX").string();
  if (error || mkdtemp(path.data()) == nullptr)
    throw Failure{chat::kRunTimeError, path + ": cannot make a folder"};
  return path;
}

void PutFile(const std::string& file, const std::string& as) { fs::create_symlink(file, as); }

}  // namespace bench
