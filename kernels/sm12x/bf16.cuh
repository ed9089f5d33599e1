// SPDX-License-Identifier: Apache-2.0
// bf16 numbers as bits, in registers and in 16-byte vectors of eight.
#pragma once

#include <cstdint>

#include "kernels/sm12x/arch/numbers.cuh"

namespace dsv4::sm12x {

__device__ __forceinline__ float Bf16(uint16_t bits) {
  return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}
__device__ __forceinline__ float Bf16Low(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float Bf16High(uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000u);
}

__device__ __forceinline__ float RoundBf16(float value) { return Bf16Low(Bf16x2(value, 0)); }

// Two bf16 numbers, each reduced to the upper four of its eight significant bits; and what remains.
__device__ __forceinline__ uint32_t UpperBits(uint32_t pair) { return pair & 0xfff0fff0u; }
__device__ __forceinline__ uint32_t LowerBits(uint32_t pair) {
  return SubtractBf16x2(pair, UpperBits(pair));
}

__device__ __forceinline__ void UnpackBf16x8(uint4 v, float (&out)[8]) {
  const uint32_t pairs[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    out[2 * i] = Bf16Low(pairs[i]);
    out[2 * i + 1] = Bf16High(pairs[i]);
  }
}
// Eight values at a 16-byte boundary.
__device__ __forceinline__ void LoadBf16x8(const uint16_t* from, float (&out)[8]) {
  UnpackBf16x8(*reinterpret_cast<const uint4*>(from), out);
}
__device__ __forceinline__ void StoreBf16x8(const float (&value)[8], uint16_t* to) {
  uint4 v;
  v.x = Bf16x2(value[0], value[1]);
  v.y = Bf16x2(value[2], value[3]);
  v.z = Bf16x2(value[4], value[5]);
  v.w = Bf16x2(value[6], value[7]);
  *reinterpret_cast<uint4*>(to) = v;
}

}  // namespace dsv4::sm12x
