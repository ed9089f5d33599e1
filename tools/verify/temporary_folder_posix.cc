// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "lib/base/error.h"
#include "tools/verify/temporary_folder.h"

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

}  // namespace dsv4
