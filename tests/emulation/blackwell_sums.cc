// SPDX-License-Identifier: Apache-2.0
// Linked into an executable with the emulated GPU, gives it the sums of an RTX Blackwell's tensor
// cores.
#include "tests/emulation/matrix_products.h"

namespace dsv4::emulation {
namespace {

[[maybe_unused]] const bool set = [] {
  SetMmaModel(kRtxBlackwell);
  return true;
}();

}  // namespace
}  // namespace dsv4::emulation
