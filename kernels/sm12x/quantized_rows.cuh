// SPDX-License-Identifier: Apache-2.0
// Quantised activations in this backend: e4m3 with a ue8m0 scale for each run of 128
// (QuantizedRows::kCodes of op.h). Layout of a row: packed_layout.h.
#pragma once

#include <cstdint>

#include "kernels/sm12x/arch/numbers.cuh"
#include "kernels/sm12x/packed_layout.h"

namespace dsv4::sm12x {

inline constexpr int kQuantRun = kKSlice;

// ue8m0 of act_quant's scale for a run whose largest magnitude is `amax` (model.md section 3): the
// power of two at or above max(amax, 1e-4) / 448; 448 is 1.75 times 2^8.
__device__ __forceinline__ uint32_t QuantScale(float amax) {
  constexpr uint32_t kAbove = 0x7fffff - 0x600000;  // carries where the mantissa is above 1.75
  return ((__float_as_uint(fmaxf(amax, 1e-4f)) + kAbove) >> 23) - 8;
}

// 2^(127 - scale): a value is multiplied by it before it is rounded to e4m3. Exact: act_quant's
// scales are between 105 and 248.
__device__ __forceinline__ float InverseQuantScale(uint32_t scale) {
  return __uint_as_float((254 - scale) << 23);
}

// Codes of eight elements, and the scale of their run.
struct QuantizedEight {
  uint32_t low, high;
  uint32_t scale;
};
// Whole warps call it: 16 lanes share a run of 128 elements, eight each.
__device__ __forceinline__ QuantizedEight Quantized(const float (&x)[8]) {
  float amax = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) amax = fmaxf(amax, fabsf(x[i]));
#pragma unroll
  for (int offset = 8; offset > 0; offset /= 2) {
    amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, offset));
  }
  const uint32_t scale = QuantScale(amax);
  const float inverse = InverseQuantScale(scale);
  uint32_t codes[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    codes[i] = E4M3x2(x[4 * i] * inverse, x[4 * i + 1] * inverse) |
               static_cast<uint32_t>(E4M3x2(x[4 * i + 2] * inverse, x[4 * i + 3] * inverse)) << 16;
  }
  return {codes[0], codes[1], scale};
}

// Writes eight elements of a quantised row at `column`, a multiple of 8.
__device__ __forceinline__ void StoreQuantized(const QuantizedEight& q, int64_t column, int64_t dim,
                                               uint8_t* row) {
  *reinterpret_cast<uint2*>(row + QuantizedOffset(column)) = make_uint2(q.low, q.high);
  if (threadIdx.x % 16 == 0) row[dim + column / kQuantRun] = static_cast<uint8_t>(q.scale);
}

// If `active`, quantises eight elements and writes them. All lanes of a warp call it, as with
// Quantized.
__device__ __forceinline__ void StoreQuantized(const float (&x)[8], bool active, int64_t column,
                                               int64_t dim, uint8_t* row) {
  const QuantizedEight q = Quantized(x);
  if (active) StoreQuantized(q, column, dim, row);
}

}  // namespace dsv4::sm12x
