// SPDX-License-Identifier: Apache-2.0
// Linked into tests of the cuda backend that look at the host's part alone: they run on a GPU that
// is not there.
#include "tests/support/fake_cuda_runtime.h"

namespace dsv4::test {
namespace {

[[maybe_unused]] const bool set = [] {
  SetFakeCuda({.pinned = 2});
  return true;
}();

}  // namespace
}  // namespace dsv4::test
