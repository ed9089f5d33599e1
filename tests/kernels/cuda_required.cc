// SPDX-License-Identifier: Apache-2.0
// Linked into tests that need a CUDA device: without one they say so and are skipped.
#include "tests/kernels/cuda_memory.h"
#include "tests/support/main.h"

namespace dsv4::test {

const char* CannotRun() { return HasCudaDevice() ? nullptr : "no CUDA device"; }

}  // namespace dsv4::test
