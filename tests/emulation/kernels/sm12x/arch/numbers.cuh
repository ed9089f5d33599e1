// SPDX-License-Identifier: Apache-2.0
// Stands for kernels/sm12x/arch/numbers.cuh: what the PTX ISA says of its instructions.
#pragma once

#include "kernels/op/quantizers.h"
#include "tests/emulation/device.h"

namespace dsv4::sm12x {

// bf16 nearest to a sum or product that a double holds exactly, even ones first. Cut off to f32
// with the last bit set for a remainder, it is rounded once.
inline uint32_t NearestBf16(double x) {
  const auto nearest = static_cast<float>(x);
  if (std::isnan(nearest)) return 0x7fff;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  if (double{nearest} != x) {
    if (std::fabs(double{nearest}) > std::fabs(x)) --bits;
    bits |= 1;
  }
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
inline double Bf16Half(uint32_t pair, int half) {
  return std::bit_cast<float>(pair >> 16 * half << 16);
}
template <class F>
uint32_t ForBf16x2(uint32_t a, uint32_t b, F f) {
  return NearestBf16(f(Bf16Half(a, 0), Bf16Half(b, 0))) |
         NearestBf16(f(Bf16Half(a, 1), Bf16Half(b, 1))) << 16;
}

inline uint16_t E4M3x2(float low, float high) {
  return static_cast<uint16_t>(EncodeE4M3(low) | EncodeE4M3(high) << 8);
}

// Magnitudes below 8 are so many times 2^-9; the others have their exponent, less 7, in the upper
// four bits. f16's is less 15, and its mantissa seven bits longer.
inline uint32_t F16OfE4M3(uint32_t code) {
  const uint32_t sign = (code & 0x80) << 8;
  uint32_t magnitude = code & 0x7f;
  if (magnitude == 0x7f) return 0x7fff;
  if (magnitude >= 8) return sign | (magnitude + (8 << 3)) << 7;
  if (magnitude == 0) return sign;
  uint32_t exponent = 9;
  while (magnitude < 8) {
    magnitude *= 2;
    --exponent;
  }
  return sign | exponent << 10 | (magnitude & 7) << 7;
}
inline uint32_t F16x2OfE4M3x2(uint16_t codes) {
  return F16OfE4M3(codes & 0xff) | F16OfE4M3(codes >> 8) << 16;
}

inline float FloatOfF16(uint32_t bits) {
  const uint32_t sign = (bits & 0x8000) << 16, magnitude = bits & 0x7fff;
  float value = std::bit_cast<float>((magnitude << 13) + (112u << 23));
  if (magnitude < 0x400) value = static_cast<float>(magnitude) * 0x1p-24f;
  if (magnitude >= 0x7c00) value = magnitude == 0x7c00 ? INFINITY : NAN;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}
inline float2 FloatsOfF16x2(uint32_t pair) {
  return {FloatOfF16(pair & 0xffff), FloatOfF16(pair >> 16)};
}
// f16 nearest to a product that a double holds exactly, even ones first.
inline uint32_t NearestF16(double x) {
  const uint32_t sign = std::signbit(x) ? 0x8000 : 0;
  if (std::isnan(x)) return 0x7fff;
  if (std::isinf(x)) return sign | 0x7c00;
  const double magnitude = std::fabs(x);
  if (magnitude < 0x1p-14) return sign | static_cast<uint32_t>(std::nearbyint(magnitude * 0x1p24));
  // Exponent and 10 bits of the mantissa, as a double has them, and its exponent's bias less 15.
  uint64_t bits = std::bit_cast<uint64_t>(magnitude);
  bits += (uint64_t{1} << 41) - 1 + (bits >> 42 & 1);
  return sign |
         static_cast<uint32_t>(std::min((bits >> 42) - (uint64_t{1008} << 10), uint64_t{0x7c00}));
}
inline uint32_t MultiplyF16x2(uint32_t a, uint32_t b) {
  const auto product = [](uint32_t x, uint32_t y) {
    return NearestF16(double{FloatOfF16(x)} * FloatOfF16(y));
  };
  return product(a & 0xffff, b & 0xffff) | product(a >> 16, b >> 16) << 16;
}

inline uint32_t F16x2(float low, float high) { return NearestF16(low) | NearestF16(high) << 16; }
inline uint32_t Bf16x2(float low, float high) { return NearestBf16(low) | NearestBf16(high) << 16; }
inline uint32_t MultiplyBf16x2(uint32_t a, uint32_t b) {
  return ForBf16x2(a, b, [](double x, double y) { return x * y; });
}

inline uint32_t SubtractBf16x2(uint32_t a, uint32_t b) {
  return ForBf16x2(a, b, [](double x, double y) { return x - y; });
}

inline uint32_t BytesOrSigns(uint32_t word, uint32_t selector) {
  uint32_t out = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t choice = selector >> 4 * i & 15;
    // Bytes 4 .. 7 are 0.
    const uint32_t byte = (choice & 4) != 0 ? 0 : word >> 8 * (choice & 3) & 0xff;
    out |= ((choice & 8) == 0 ? byte : byte >> 7 != 0 ? 0xffu : 0u) << 8 * i;
  }
  return out;
}

inline float ApproximateReciprocal(float x) {
  const auto flushed = [](float v) {
    return std::fabs(v) < 0x1p-126f ? std::copysign(0.0f, v) : v;
  };
  return flushed(1 / flushed(x));
}

}  // namespace dsv4::sm12x
