// SPDX-License-Identifier: Apache-2.0
// Time as benchmarks measure it.
#pragma once

#include <chrono>

namespace dsv4 {

using Clock = std::chrono::steady_clock;

inline double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace dsv4
