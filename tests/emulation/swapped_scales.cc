// SPDX-License-Identifier: Apache-2.0
// Linked into an executable with the emulated GPU, lets block-scaled products take the scales of
// each row from another one.
#include "tests/emulation/matrix_products.h"

namespace dsv4::emulation {
namespace {

[[maybe_unused]] const bool set = [] {
  SetMmaModel({.fault = MmaFault::kSwappedRowScales});
  return true;
}();

}  // namespace
}  // namespace dsv4::emulation
