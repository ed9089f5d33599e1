// SPDX-License-Identifier: Apache-2.0
#include <windows.h>

#include "lib/io/system_error.h"

namespace dsv4 {

SystemErrorKind KindOf(int error) {
  switch (error) {
    case ERROR_FILE_NOT_FOUND:
    case ERROR_PATH_NOT_FOUND:
    case ERROR_INVALID_NAME:
    case ERROR_INVALID_DRIVE:
    case ERROR_BAD_NETPATH:
    case ERROR_BAD_NET_NAME:
      return SystemErrorKind::kNotFound;
    case ERROR_NOT_ENOUGH_MEMORY:
    case ERROR_OUTOFMEMORY:
    case ERROR_COMMITMENT_LIMIT:
    case ERROR_NO_SYSTEM_RESOURCES:
      return SystemErrorKind::kNoMemory;
    default:
      return SystemErrorKind::kOther;
  }
}

}  // namespace dsv4
