// SPDX-License-Identifier: Apache-2.0
// Linked into tests of the CUDA backend, with its kernels compiled for the host: they run on a GPU
// that is not there, an RTX PRO 6000 by its numbers.
#include "tests/support/fake_cuda_runtime.h"

namespace dsv4::test {
namespace {

[[maybe_unused]] const bool set = [] {
  SetFakeCuda({.name = "emulated", .works = true});
  return true;
}();

}  // namespace
}  // namespace dsv4::test
