// SPDX-License-Identifier: Apache-2.0
// Linked into tests that need DSV4_NEEDED_GPUS CUDA devices: without them they say so and are
// skipped.
#include "tests/kernels/cuda_memory.h"
#include "tests/support/main.h"

namespace dsv4::test {

const char* CannotRun() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) return "no CUDA device";
  return count < DSV4_NEEDED_GPUS ? "not as many CUDA devices as it needs" : nullptr;
}

}  // namespace dsv4::test
