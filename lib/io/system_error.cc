// SPDX-License-Identifier: Apache-2.0
#include "lib/io/system_error.h"

#include "lib/base/error.h"

namespace dsv4 {

absl::Status SystemError(const std::string& path, absl::string_view action, int error) {
  switch (KindOf(error)) {
    case SystemErrorKind::kNotFound:
      return NotFound(path, ": no such file");
    case SystemErrorKind::kNoMemory:
      return OutOfHostMemory(path, ": cannot ", action, ": ", SystemReason(error));
    case SystemErrorKind::kOther:
      break;
  }
  return IoError(path, ": cannot ", action, ": ", SystemReason(error));
}

}  // namespace dsv4
