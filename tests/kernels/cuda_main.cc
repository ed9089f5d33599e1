// SPDX-License-Identifier: Apache-2.0
// The main function of the tests that need a CUDA device: without one they say so and are skipped.
#define CATCH_CONFIG_RUNNER
#include <cstdio>

#include "tests/kernels/cuda_memory.h"
#include "tests/support/catch.h"

int main(int argc, char** argv) {
  if (!dsv4::test::HasCudaDevice()) {
    std::puts("skipped: no CUDA device");
    return 77;
  }
  return Catch::Session().run(argc, argv);
}
