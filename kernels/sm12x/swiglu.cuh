// SPDX-License-Identifier: Apache-2.0
// silu(gate) * up * weight.
#pragma once

#include <cmath>

namespace dsv4::sm12x {

// gate and up are bf16 numbers; limit 0 clamps nothing.
__device__ __forceinline__ float GatedProduct(float gate, float up, float limit, float weight) {
  if (limit > 0) {
    gate = fminf(gate, limit);
    up = fminf(fmaxf(up, -limit), limit);
  }
  return __fdividef(gate, __fadd_rn(1.0f, expf(-gate))) * up * weight;
}

}  // namespace dsv4::sm12x
