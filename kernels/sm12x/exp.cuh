// SPDX-License-Identifier: Apache-2.0
// Exponentials as pairs of f32, by polynomials: what scales whole rows must be the nearest float,
// which expf does not give, and f64 is slow on SM12x (two_float.cuh).
#pragma once

#include "kernels/sm12x/two_float.cuh"

namespace dsv4::sm12x {

// 2^f = sum of of[n] f^n, to 2^-41 for |f| <= 1/2.
struct Exp2Terms {
  static constexpr int kCount = 11;
  double of[kCount] = {1};
  constexpr Exp2Terms() {
    for (int n = 1; n < kCount; ++n) of[n] = of[n - 1] * 0.69314718055994530942 / n;
  }
};

// e^x to about 2^-37; 0 below e^-87. `x` is not much above 0.
__device__ __forceinline__ TwoFloat Exp(TwoFloat x) {
  if (x.hi < -87.0f) return {0, 0};
  constexpr double kLog2E = 1.4426950408889634074;
  const TwoFloat y = Product(x, PairOf(kLog2E)).Normalized();
  const float n = rintf(y.hi), whole = __fsub_rn(y.hi, n);
  const TwoFloat f = TwoFloat{whole, y.lo}.Normalized();
  constexpr Exp2Terms kTerms;
  constexpr int kPairs = 5;  // terms that must be pairs
  float rest = 0;
#pragma unroll
  for (int i = Exp2Terms::kCount - 1; i >= kPairs; --i) {
    rest = __fmaf_rn(rest, f.hi, static_cast<float>(kTerms.of[i]));
  }
  TwoFloat sum = ExactProduct(rest, f.hi);
#pragma unroll
  for (int i = kPairs - 1; i >= 0; --i) {
    TwoFloat term = PairOf(kTerms.of[i]);
    term.Add(i == kPairs - 1 ? sum : Product(sum, f));
    sum = term;
  }
  const float power = __int_as_float((static_cast<int>(n) + 127) << 23);
  return {__fmul_rn(sum.hi, power), __fmul_rn(sum.lo, power)};
}

// 1 / (1 + e^-x).
__device__ __forceinline__ TwoFloat Sigmoid(TwoFloat x) {
  const bool negative = x.hi < 0;
  const TwoFloat power = Exp(negative ? x : TwoFloat{-x.hi, -x.lo});
  TwoFloat sum{1, 0};
  sum.Add(power);
  const TwoFloat inverse = Reciprocal(sum);
  return negative ? Product(power, inverse) : inverse;
}

// log(1 + e) of 0 <= e <= 1, to about 2^-33.
__device__ __forceinline__ TwoFloat LogOfOnePlus(TwoFloat e) {
  if (e.hi < 0.0625f) {  // e - e^2 / 2 + e^3 q(e)
    float q = 1.0f / 9;
#pragma unroll
    for (int i = 8; i >= 3; --i) {
      q = __fmaf_rn(q, -e.hi, 1.0f / static_cast<float>(i));
    }
    TwoFloat sum = e;
    sum.Add(Product(e, {-0.5f * e.hi, -0.5f * e.lo}));
    sum.Add(__fmul_rn(__fmul_rn(__fmul_rn(e.hi, e.hi), e.hi), q));
    return sum;
  }
  // One Newton step of the f32 logarithm y: y + (1 + e) exp(-y) - 1.
  const float y = log1pf(e.hi);
  TwoFloat sum{1, 0};
  sum.Add(e);
  TwoFloat step = Product(sum, Exp({-y, 0}));
  step.Add(-1.0f);
  TwoFloat log{y, 0};
  log.Add(step);
  return log;
}

// sqrt(log(1 + e^x)), rounded to f32 but for about one in 10^5. Below -40 the logarithm is e^x.
__device__ __forceinline__ float RootOfSoftplus(float x) {
  if (x < -40.0f) return Exp({0.5f * x, 0}).Rounded();
  TwoFloat sum{fmaxf(x, 0.0f), 0};
  sum.Add(LogOfOnePlus(Exp({-fabsf(x), 0})));
  const float inverse = rsqrtf(sum.hi), root = __fmul_rn(sum.hi, inverse);
  const float rest = __fmaf_rn(-root, root, sum.hi) + sum.lo;
  return __fmaf_rn(__fmul_rn(0.5f, rest), inverse, root);
}

}  // namespace dsv4::sm12x
