// SPDX-License-Identifier: Apache-2.0
// Sums of about 48 bits in pairs of f32: what is rounded to bf16 must not carry the noise of f32 sums
// (docs/adr/0009), and SM12x does 64 times as many f32 operations as f64 ones. Error-free sums and
// products by Knuth and Dekker.
#pragma once

#include <cstdint>

namespace dsv4::sm12x {

struct TwoFloat {
  float hi = 0, lo = 0;  // hi + lo, |lo| <= ulp(hi) / 2 after Normalized

  // + x.
  __device__ __forceinline__ void Add(float x) {
    const float sum = __fadd_rn(hi, x);
    const float part = __fsub_rn(sum, hi);
    lo += __fadd_rn(__fsub_rn(hi, __fsub_rn(sum, part)), __fsub_rn(x, part));
    hi = sum;
  }
  __device__ __forceinline__ void Add(TwoFloat x) {
    Add(x.hi);
    lo += x.lo;
  }
  // + a * b.
  __device__ __forceinline__ void AddProduct(float a, float b) {
    const float product = __fmul_rn(a, b);
    const float error = __fmaf_rn(a, b, -product);
    Add(product);
    lo += error;
  }
  __device__ __forceinline__ float Rounded() const { return hi + lo; }
};

// a * b.
__device__ __forceinline__ TwoFloat ExactProduct(float a, float b) {
  const float product = __fmul_rn(a, b);
  return {product, __fmaf_rn(a, b, -product)};
}

__device__ __forceinline__ TwoFloat Product(TwoFloat a, TwoFloat b) {
  const float product = __fmul_rn(a.hi, b.hi);
  const float error = __fmaf_rn(a.hi, b.hi, -product);
  return {product, error + __fmaf_rn(a.hi, b.lo, __fmul_rn(a.lo, b.hi))};
}

// a / count, of an integer below 2^24.
__device__ __forceinline__ TwoFloat Quotient(TwoFloat a, float count) {
  const float quotient = __fdiv_rn(a.hi, count);
  const float rest = __fmaf_rn(-quotient, count, a.hi);
  return {quotient, __fdiv_rn(rest + a.lo, count)};
}

// 1 / sqrt(a), a > 0: one Newton step of the f32 one, its residue without cancellation.
__device__ __forceinline__ TwoFloat InverseSqrt(TwoFloat a) {
  const float y = rsqrtf(a.hi);
  const float square = __fmul_rn(y, y);
  const float error = __fmaf_rn(y, y, -square);
  float residue = __fmaf_rn(a.hi, square, -1.0f);
  residue += __fmaf_rn(a.hi, error, __fmul_rn(a.lo, square));
  return {y, -0.5f * y * residue};
}

// x * scale, rounded once to f32.
__device__ __forceinline__ float Scaled(float x, TwoFloat scale) {
  const float product = __fmul_rn(x, scale.hi);
  return product + __fmaf_rn(x, scale.lo, __fmaf_rn(x, scale.hi, -product));
}

// The sum over the lanes of a warp, in every lane; always in the same order.
__device__ __forceinline__ TwoFloat WarpSum(TwoFloat value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    TwoFloat other;
    other.hi = __shfl_xor_sync(0xffffffffu, value.hi, offset);
    other.lo = __shfl_xor_sync(0xffffffffu, value.lo, offset);
    // Both lanes of a pair must see the same sum: the lower one's value comes first.
    const bool upper = (threadIdx.x & offset) != 0;
    TwoFloat first = upper ? other : value;
    first.Add(upper ? value : other);
    value = first;
  }
  return value;
}

}  // namespace dsv4::sm12x
