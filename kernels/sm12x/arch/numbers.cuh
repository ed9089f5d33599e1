// SPDX-License-Identifier: Apache-2.0
// Conversions between number formats and arithmetic on pairs of numbers: instructions of every
// target that this backend is built for.
#pragma once

#include <cstdint>

#include "kernels/sm12x/arch/target.cuh"

namespace dsv4::sm12x {

// Two values as e4m3, `low` in the low byte. Rounds to nearest even; saturates at 448.
__device__ __forceinline__ uint16_t E4M3x2(float low, float high) {
  uint16_t out;
  DSV4_PTX("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(out) : "f"(high), "f"(low));
  return out;
}

// Two e4m3 codes as f16x2, exactly; the low byte in the low half.
__device__ __forceinline__ uint32_t F16x2OfE4M3x2(uint16_t codes) {
  uint32_t out;
  DSV4_PTX("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(out) : "h"(codes));
  return out;
}

// The two halves of an f16x2, exactly.
__device__ __forceinline__ float2 FloatsOfF16x2(uint32_t pair) {
  float2 out;
  DSV4_PTX(
      "{\n\t.reg .b16 low, high;\n\tmov.b32 {low, high}, %2;\n\tcvt.f32.f16 %0, low;\n\t"
      "cvt.f32.f16 %1, high;\n\t}"
      : "=f"(out.x), "=f"(out.y)
      : "r"(pair));
  return out;
}

// Two values as f16, rounded to nearest even, `low` in the low half.
__device__ __forceinline__ uint32_t F16x2(float low, float high) {
  uint32_t out;
  DSV4_PTX("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}

// Two values as bf16, rounded to nearest even, `low` in the low half.
__device__ __forceinline__ uint32_t Bf16x2(float low, float high) {
  uint32_t out;
  DSV4_PTX("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}

// The products of two pairs of bf16, subnormal numbers included.
__device__ __forceinline__ uint32_t MultiplyBf16x2(uint32_t a, uint32_t b) {
  uint32_t out;
  DSV4_PTX("mul.rn.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
  return out;
}

// The products of two pairs of f16, subnormal numbers included.
__device__ __forceinline__ uint32_t MultiplyF16x2(uint32_t a, uint32_t b) {
  uint32_t out;
  DSV4_PTX("mul.rn.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
  return out;
}

// The differences of two pairs of bf16.
__device__ __forceinline__ uint32_t SubtractBf16x2(uint32_t a, uint32_t b) {
  uint32_t out;
  DSV4_PTX("sub.rn.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
  return out;
}

// Selects four bytes. Each four bits of `selector` give one: byte 0 .. 3 of `word`, or with bit 3
// set eight copies of that byte's sign bit.
__device__ __forceinline__ uint32_t BytesOrSigns(uint32_t word, uint32_t selector) {
  uint32_t out;
  DSV4_PTX("prmt.b32 %0, %1, 0, %2;" : "=r"(out) : "r"(word), "r"(selector));
  return out;
}

// 1 / x within one ulp; flushes subnormal numbers to 0.
__device__ __forceinline__ float ApproximateReciprocal(float x) {
  float out;
  DSV4_PTX("rcp.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
}

}  // namespace dsv4::sm12x
