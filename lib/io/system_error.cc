// SPDX-License-Identifier: Apache-2.0
#include "lib/io/system_error.h"

#include <cerrno>

#include "lib/base/error.h"

namespace dsv4 {

absl::Status SystemError(const std::string& path, absl::string_view action, int error) {
  if (error == ENOENT || error == ENOTDIR) return NotFound(path, ": no such file");
  if (error == ENOMEM) {
    return OutOfHostMemory(path, ": cannot ", action, ": ", SystemReason(error));
  }
  return IoError(path, ": cannot ", action, ": ", SystemReason(error));
}

}  // namespace dsv4
