// SPDX-License-Identifier: Apache-2.0
// Conversions between f32 or f16 and e4m3: instructions of every target that this backend has.
#pragma once

#include <cstdint>

namespace dsv4::sm12x {

// e4m3 of two values, `low` in the low byte: nearest even, largest finite beyond 448.
__device__ __forceinline__ uint16_t E4M3x2(float low, float high) {
  uint16_t out;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(out) : "f"(high), "f"(low));
  return out;
}

// The two values of e4m3 codes as f16x2, exactly; the low byte's in the low half.
__device__ __forceinline__ uint32_t F16x2OfE4M3x2(uint16_t codes) {
  uint32_t out;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(out) : "h"(codes));
  return out;
}

}  // namespace dsv4::sm12x
