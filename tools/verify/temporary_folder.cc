// SPDX-License-Identifier: Apache-2.0
#include "tools/verify/temporary_folder.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "lib/base/error.h"

namespace dsv4 {

absl::StatusOr<TemporaryFolder> TemporaryFolder::Create() {
  const char* parent = std::getenv("TMPDIR");
  if (parent == nullptr || *parent == '\0') parent = "/tmp";
  std::string path = std::string(parent) + "/dsv4-verify-XXXXXX";
  if (mkdtemp(path.data()) == nullptr) {
    return IoError(parent, ": cannot make a folder: ", std::generic_category().message(errno));
  }
  return TemporaryFolder(std::move(path));
}

TemporaryFolder::TemporaryFolder(TemporaryFolder&& other) noexcept
    : path_(std::exchange(other.path_, {})) {}

TemporaryFolder::~TemporaryFolder() {
  if (path_.empty()) return;
  std::error_code ignored;  // a destructor cannot report it
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace dsv4
