// SPDX-License-Identifier: Apache-2.0
#include "lib/io/system_error.h"

#include <cerrno>
#include <cstring>

#include "lib/base/error.h"

namespace dsv4 {
namespace {

// The system's words for `error`, in a buffer of the caller: strerror's own is shared by all
// threads.
std::string SystemReason(int error) {
  char buffer[256] = "";
  return strerror_r(error, buffer, sizeof buffer);  // the GNU form: may return a constant string
}

}  // namespace

absl::Status SystemError(const std::string& path, absl::string_view action, int error) {
  if (error == ENOENT || error == ENOTDIR) return NotFound(path, ": no such file");
  return IoError(path, ": cannot ", action, ": ", SystemReason(error));
}

}  // namespace dsv4
