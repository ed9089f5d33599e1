// SPDX-License-Identifier: Apache-2.0
// Exponentials as double-singles, by polynomials, for the mixing numbers of hyper-connections.
// These scale whole rows and must be the nearest floats. expf is less accurate, and f64 is slow on
// SM12x (double_single.cuh).
#pragma once

#include "kernels/sm12x/double_single.cuh"

namespace dsv4::sm12x {

// 2^f = sum of of[n] f^n for |f| <= 1/2, with an error below 2^-41.
struct Exp2Terms {
  static constexpr int kCount = 11;
  double of[kCount] = {1};
  constexpr Exp2Terms() {
    for (int n = 1; n < kCount; ++n) of[n] = of[n - 1] * 0.69314718055994530942 / n;
  }
};

// e^x with an error of about 2^-37; 0 below e^-87. REQUIRES: x is not much above 0.
__device__ __forceinline__ DoubleSingle Exp(DoubleSingle x) {
  if (x.hi < -87.0f) return {0, 0};
  constexpr double kLog2E = 1.4426950408889634074;
  const DoubleSingle y = Product(x, PairOf(kLog2E)).Normalized();
  const float n = rintf(y.hi), whole = __fsub_rn(y.hi, n);
  const DoubleSingle f = DoubleSingle{whole, y.lo}.Normalized();
  constexpr Exp2Terms kTerms;
  constexpr int kPairs = 5;  // terms that must be pairs
  float rest = 0;
#pragma unroll
  for (int i = Exp2Terms::kCount - 1; i >= kPairs; --i) {
    rest = __fmaf_rn(rest, f.hi, static_cast<float>(kTerms.of[i]));
  }
  DoubleSingle sum = ExactProduct(rest, f.hi);
#pragma unroll
  for (int i = kPairs - 1; i >= 0; --i) {
    DoubleSingle term = PairOf(kTerms.of[i]);
    term.Add(i == kPairs - 1 ? sum : Product(sum, f));
    sum = term;
  }
  const float power = __int_as_float((static_cast<int>(n) + 127) << 23);
  return {__fmul_rn(sum.hi, power), __fmul_rn(sum.lo, power)};
}

// 1 / (1 + e^-x).
__device__ __forceinline__ DoubleSingle Sigmoid(DoubleSingle x) {
  const bool negative = x.hi < 0;
  const DoubleSingle power = Exp(negative ? x : DoubleSingle{-x.hi, -x.lo});
  DoubleSingle sum{1, 0};
  sum.Add(power);
  const DoubleSingle inverse = Reciprocal(sum);
  return negative ? Product(power, inverse) : inverse;
}

}  // namespace dsv4::sm12x
