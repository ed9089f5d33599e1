// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <random>
#include <system_error>

#include "lib/base/error.h"
#include "tools/verify/temporary_folder.h"

namespace dsv4 {

// In the user's own folder of temporary files.
absl::StatusOr<TemporaryFolder> TemporaryFolder::Create() {
  std::error_code error;
  const std::string parent = std::filesystem::temp_directory_path(error).generic_string();
  std::random_device random;
  for (int attempt = 0; attempt < 100 && !error; ++attempt) {
    std::string path = absl::StrCat(parent, "/dsv4-verify-", random());
    if (std::filesystem::create_directory(path, error)) return TemporaryFolder(std::move(path));
  }
  return IoError(parent, ": cannot make a folder: ", error.message());
}

}  // namespace dsv4
