// SPDX-License-Identifier: Apache-2.0
#include <cerrno>

#include "lib/io/system_error.h"

namespace dsv4 {

SystemErrorKind KindOf(int error) {
  if (error == ENOENT || error == ENOTDIR) return SystemErrorKind::kNotFound;
  return error == ENOMEM ? SystemErrorKind::kNoMemory : SystemErrorKind::kOther;
}

}  // namespace dsv4
