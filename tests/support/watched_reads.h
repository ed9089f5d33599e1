// SPDX-License-Identifier: Apache-2.0
// Plain reads of files, which tests have fail. For executables that are linked with
// watched_reads.cc and --wrap=pread.
#pragma once

#include <atomic>

namespace dsv4::test {

inline constexpr int kNoFailure = -1;
// So many reads succeed, and all after them fail with EIO; kNoFailure: all succeed.
extern std::atomic<int> reads_before_failure;

}  // namespace dsv4::test
