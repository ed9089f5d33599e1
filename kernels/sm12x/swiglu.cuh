// SPDX-License-Identifier: Apache-2.0
// silu(gate) * up * weight, accurate to about 2^-27, without f64: SM12x does one f64 operation for
// 64 of f32.
#pragma once

#include "kernels/sm12x/two_float.cuh"

namespace dsv4::sm12x {

// exp(x), x in [-80, 80] and of at most 16 bits (a bf16 number).
__device__ __forceinline__ TwoFloat AccurateExp(float x) {
  // x = n log 2 + r; the products with the upper parts of log 2 are exact.
  const float n = rintf(x * 1.44269504f);
  const float r0 = __fmaf_rn(-n, 0x1.62e4p-1f, x);
  const float r_lo = n * -0x1.7f7d1cp-20f;
  const float r = __fadd_rn(r0, r_lo);
  const float r_rest = __fadd_rn(__fsub_rn(r0, r), r_lo);
  // exp(r) - 1 - r.
  float p = 2.48015873e-5f;
  p = __fmaf_rn(p, r, 1.98412698e-4f);
  p = __fmaf_rn(p, r, 1.38888889e-3f);
  p = __fmaf_rn(p, r, 8.33333333e-3f);
  p = __fmaf_rn(p, r, 4.16666667e-2f);
  p = __fmaf_rn(p, r, 1.66666667e-1f);
  p = __fmaf_rn(p, r, 0.5f);
  TwoFloat sum{1.0f, 0.0f};
  sum.Add(r);
  sum.Add(__fmaf_rn(r * r, p, r_rest));
  const float scale = __uint_as_float(static_cast<uint32_t>(static_cast<int>(n) + 127) << 23);
  return {sum.hi * scale, sum.lo * scale};
}

// gate and up are bf16 numbers; limit 0 clamps nothing.
__device__ __forceinline__ float GatedProduct(float gate, float up, float limit, float weight) {
  if (limit > 0) {
    gate = fminf(gate, limit);
    up = fminf(fmaxf(up, -limit), limit);
  }
  // Beyond 80 the other term of the sum does not count, or the quotient not.
  TwoFloat divisor = AccurateExp(fminf(fmaxf(-gate, -80.0f), 80.0f));
  divisor.Add(1.0f);
  const float product = __fmul_rn(gate, up);  // exact
  const float high = __fmul_rn(product, weight);
  const float low = __fmaf_rn(product, weight, -high);
  const float quotient = __fdiv_rn(high, divisor.hi);
  const float rest = __fmaf_rn(-quotient, divisor.hi, high) + (low - quotient * divisor.lo);
  return quotient + __fdividef(rest, divisor.hi);
}

}  // namespace dsv4::sm12x
