// SPDX-License-Identifier: Apache-2.0
// Counts calls of the CUDA runtime. A test that links cuda_calls.cc has the linker's --wrap for
// each function that it counts (tests/lib/engine/CMakeLists.txt).
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace dsv4::test {

struct CudaCalls {
  int64_t allocations = 0;  // of the device's memory, or pinned
  int64_t graphs = 0;       // instantiated
  int64_t replays = 0;      // of graphs
  int64_t launches = 0;     // of kernels by themselves, or to be recorded
  int64_t waits = 0;        // for a stream, or for an event that had not come yet
};

// Those that `f` makes, on any thread.
CudaCalls CountCudaCalls(absl::FunctionRef<void()> f);

}  // namespace dsv4::test
