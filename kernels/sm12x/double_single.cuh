// SPDX-License-Identifier: Apache-2.0
// Double-single arithmetic: numbers of about 48 bits as pairs of f32, for the mixing numbers of
// hyper-connections, because Sinkhorn's steps amplify errors (docs/adr/0022). SM12x does 64 times
// as many f32 operations as f64 ones. Error-free sums and products by Knuth and Dekker.
#pragma once

#include <cstdint>

#include "kernels/sm12x/arch/numbers.cuh"

namespace dsv4::sm12x {

struct DoubleSingle {
  float hi = 0, lo = 0;  // hi + lo, |lo| <= ulp(hi) / 2 after Normalized

  // *this += x.
  __device__ __forceinline__ void Add(float x) {
    const float sum = __fadd_rn(hi, x);
    const float part = __fsub_rn(sum, hi);
    lo += __fadd_rn(__fsub_rn(hi, __fsub_rn(sum, part)), __fsub_rn(x, part));
    hi = sum;
  }
  __device__ __forceinline__ void Add(DoubleSingle x) {
    Add(x.hi);
    lo += x.lo;
  }
  // *this += a * b.
  __device__ __forceinline__ void AddProduct(float a, float b) {
    const float product = __fmul_rn(a, b);
    const float error = __fmaf_rn(a, b, -product);
    Add(product);
    lo += error;
  }
  __device__ __forceinline__ DoubleSingle Normalized() const {
    const float sum = __fadd_rn(hi, lo);
    return {sum, __fsub_rn(lo, __fsub_rn(sum, hi))};
  }
  __device__ __forceinline__ float Rounded() const { return hi + lo; }
};

// The pair nearest to x.
constexpr DoubleSingle PairOf(double x) {
  const auto hi = static_cast<float>(x);
  return {hi, static_cast<float>(x - hi)};
}

// a * b.
__device__ __forceinline__ DoubleSingle ExactProduct(float a, float b) {
  const float product = __fmul_rn(a, b);
  return {product, __fmaf_rn(a, b, -product)};
}

__device__ __forceinline__ DoubleSingle Product(DoubleSingle a, DoubleSingle b) {
  const float product = __fmul_rn(a.hi, b.hi);
  const float error = __fmaf_rn(a.hi, b.hi, -product);
  return {product, error + __fmaf_rn(a.hi, b.lo, __fmul_rn(a.lo, b.hi))};
}

// 1 / a: the hardware's reciprocal, whose error is up to an ulp, and a Newton step.
__device__ __forceinline__ DoubleSingle Reciprocal(DoubleSingle a) {
  const float y = ApproximateReciprocal(a.hi);
  const float residue = __fmaf_rn(-a.lo, y, __fmaf_rn(-a.hi, y, 1.0f));
  return {y, __fmul_rn(y, residue)};
}

// 1 / sqrt(a), a > 0: the f32 result and a Newton step, whose residue is computed without
// cancellation.
__device__ __forceinline__ DoubleSingle InverseSqrt(DoubleSingle a) {
  const float y = rsqrtf(a.hi);
  const float square = __fmul_rn(y, y);
  const float error = __fmaf_rn(y, y, -square);
  float residue = __fmaf_rn(a.hi, square, -1.0f);
  residue += __fmaf_rn(a.hi, error, __fmul_rn(a.lo, square));
  return {y, -0.5f * y * residue};
}

// The value of lane `lane ^ mask`.
__device__ __forceinline__ DoubleSingle OfNeighbour(DoubleSingle value, int mask) {
  return {__shfl_xor_sync(0xffffffffu, value.hi, mask),
          __shfl_xor_sync(0xffffffffu, value.lo, mask)};
}

// The value of lane `lane`.
__device__ __forceinline__ DoubleSingle OfLane(DoubleSingle value, int lane) {
  return {__shfl_sync(0xffffffffu, value.hi, lane), __shfl_sync(0xffffffffu, value.lo, lane)};
}

}  // namespace dsv4::sm12x
