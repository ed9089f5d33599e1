// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "lib/base/error.h"

namespace dsv4 {

// In a buffer of the caller: strerror's own is shared by all threads.
std::string SystemReason(int error) {
  char buffer[256] = "";
  return strerror_r(error, buffer, sizeof buffer);  // the GNU form: may return a constant string
}

}  // namespace dsv4
