// SPDX-License-Identifier: Apache-2.0
// The order of eight e2m1 codes in a word of a packed fp4 weight. Masks and shifts turn a word into
// operands of the target's MMA. The device that reads a weight packs it, so each target has its own
// order. A word has four elements each of rows g and g + 8 of a tile.
//
// SM12x: the MMA takes a code in bits 5 .. 2 of a byte. Codes of row g are stored there, codes of
// row g + 8 in the other bits; a rotation by four brings them to the same place.
//
// Portable fallback: the MMA takes f16. The sign of a code in bit 15 and its magnitude in bits
// 11 .. 9 (the two lower bits of the exponent and the upper bit of the mantissa) make an f16 number
// of its value times 2^-14, subnormal numbers included. Each half word holds four codes:
// - The first is in these bits, the second 3 bits lower.
// - For the other two, no such places are left. The third is the XOR of the half word shifted left
//   by 6 and by 1; the fourth that of the shifts by 9 and by 2.
// Left shifts run in the multiplication pipe, so each code costs one operation of the logic pipe.
#pragma once

#include <cstdint>

#include "kernels/sm12x/arch/target.cuh"

namespace dsv4::sm12x {

// The factor of products with e2m1 operands: in f16, and in this target's MMA.
inline constexpr float kE2M1F16Factor = 16384.0f;
inline constexpr float kE2M1Factor = DSV4_BLOCK_SCALED_MMA ? 1.0f : kE2M1F16Factor;

namespace word {
inline constexpr uint32_t kF16Places = 0x8e008e00u;
// Elements 0 and 1 of rows g and g + 8, then 2 and 3, as f16x2 times 2^-14.
__host__ __device__ constexpr void UnpackF16(uint32_t word, uint32_t (&to)[4]) {
  to[0] = word & kF16Places;
  to[1] = word << 3 & kF16Places;
  to[2] = (word << 6 ^ word << 1) & kF16Places;
  to[3] = (word << 9 ^ word << 2) & kF16Places;
}
// Two codes of a row, `element` and the next, as f16x2 times 2^-14.
__host__ __device__ constexpr uint32_t F16OfCodes(uint32_t row, int element) {
  uint32_t out = 0;
  for (int half = 0; half < 2; ++half) {
    const uint32_t code = row >> 4 * (element + half);
    out |= ((code & 8) << 12 | (code & 7) << 9) << 16 * half;
  }
  return out;
}
// The inverse of UnpackF16: sets the first two codes, then solves for the bits of the other two.
__host__ __device__ constexpr uint32_t PackForF16(uint32_t row_g, uint32_t row_g8) {
  constexpr uint32_t kSigns = 0x80008000u, kMagnitudes = 0x0e000e00u;
  uint32_t out = F16OfCodes(row_g, 0) | F16OfCodes(row_g8, 0) >> 3;
  const uint32_t third = F16OfCodes(row_g, 2) ^ (out << 6 & kSigns) ^ (out << 1 & kMagnitudes);
  out |= (third & kSigns) >> 1 | (third & kMagnitudes) >> 6;
  const uint32_t fourth = F16OfCodes(row_g8, 2) ^ (out << 9 & kSigns) ^ (out << 2 & kMagnitudes);
  return out | (fourth & kSigns) >> 2 | (fourth & kMagnitudes) >> 9;
}

__host__ __device__ constexpr uint32_t Bytes(uint32_t codes) {
  return (codes & 15) << 2 | (codes >> 4 & 15) << 10 | (codes >> 8 & 15) << 18 |
         (codes >> 12 & 15) << 26;
}
__host__ __device__ constexpr uint32_t PackForBytes(uint32_t row_g, uint32_t row_g8) {
  const uint32_t other = Bytes(row_g8);
  return Bytes(row_g) | other >> 4 | other << 28;
}
// Elements 0 .. 3 of row g, and of row g + 8, a byte each.
__host__ __device__ constexpr void UnpackBytes(uint32_t word, uint32_t* row_g, uint32_t* row_g8) {
  *row_g = word & 0x3c3c3c3cu;
  *row_g8 = (word << 4 | word >> 28) & 0x3c3c3c3cu;
}

// Whether each code in each place survives packing and unpacking.
constexpr bool RoundTrips() {
  for (int i = 0; i < 8; ++i) {
    for (uint32_t code = 0; code < 16; ++code) {
      const uint32_t codes = code << i % 4 * 4;
      const uint32_t others = code * 0x9631u & 0xffffu;
      const uint32_t row_g = i < 4 ? codes : others, row_g8 = i < 4 ? others : codes;
      uint32_t f16[4] = {}, low = 0, high = 0;
      UnpackF16(PackForF16(row_g, row_g8), f16);
      UnpackBytes(PackForBytes(row_g, row_g8), &low, &high);
      if (low != Bytes(row_g) || high != Bytes(row_g8)) return false;
      for (int element = 0; element < 4; element += 2) {
        if (f16[element] != F16OfCodes(row_g, element)) return false;
        if (f16[element + 1] != F16OfCodes(row_g8, element)) return false;
      }
    }
  }
  return true;
}
static_assert(RoundTrips());
}  // namespace word

// Packs four e2m1 codes of row g and four of row g + 8, each from bit 0 on, for this target.
__device__ __forceinline__ uint32_t PackE2M1(uint32_t row_g, uint32_t row_g8) {
#if DSV4_BLOCK_SCALED_MMA
  return word::PackForBytes(row_g, row_g8);
#else
  return word::PackForF16(row_g, row_g8);
#endif
}

}  // namespace dsv4::sm12x
