// SPDX-License-Identifier: Apache-2.0
#include "tests/support/watched_reads.h"

#include <sys/types.h>

#include <cerrno>
#include <cstddef>

namespace dsv4::test {

std::atomic<int> reads_before_failure = kNoFailure;

}  // namespace dsv4::test

extern "C" {
ssize_t __real_pread(int file, void* to, size_t bytes, off_t offset);
ssize_t __wrap_pread(int file, void* to, size_t bytes, off_t offset) {
  int left = dsv4::test::reads_before_failure;
  while (left > 0 && !dsv4::test::reads_before_failure.compare_exchange_weak(left, left - 1)) {
  }
  if (left == 0) {
    errno = EIO;
    return -1;
  }
  return __real_pread(file, to, bytes, offset);
}
}
