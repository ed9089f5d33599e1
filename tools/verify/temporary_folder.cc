// SPDX-License-Identifier: Apache-2.0
#include "tools/verify/temporary_folder.h"

#include <filesystem>
#include <system_error>
#include <utility>

namespace dsv4 {

TemporaryFolder::TemporaryFolder(TemporaryFolder&& other) noexcept
    : path_(std::exchange(other.path_, {})) {}

TemporaryFolder::~TemporaryFolder() {
  if (path_.empty()) return;
  std::error_code ignored;  // a destructor cannot report it
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace dsv4
