// SPDX-License-Identifier: Apache-2.0
// Element types of stored tensors and activations, and the bit conversions of bf16 and f16.
// The 8-bit and 4-bit formats are in quant_format.h, those of GGUF files in block_format.h.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace dsv4 {

// kBlocks: a quantised BlockType of a GGUF file (block_format.h).
// kOther: any type that no tensor of the model has. Its elements are never looked at.
enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kF8E4M3,
  kF8E8M0,
  kI8,
  kU8,
  kI32,
  kI64,
  kBlocks,
  kOther
};

// Bytes of one stored element, 1 of kBlocks and kOther (kI8 weights hold two FP4 values a byte:
// their shape counts bytes).
int64_t DTypeBytes(DType dtype);

// The safetensors name: "F32", "BF16", "F8_E4M3", ...; nullopt for all that are kOther, and of
// kBlocks.
absl::string_view DTypeName(DType dtype);
std::optional<DType> DTypeFromName(absl::string_view name);

inline float Bf16ToFloat(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// Round to nearest even; NaN stays NaN.
inline uint16_t FloatToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// IEEE half precision.
inline float F16ToFloat(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16, magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (magnitude << 13));
  // The exponent's bias is 112 less than that of f32; subnormals are multiples of 2^-24.
  const float value = magnitude < 0x400u ? static_cast<float>(magnitude) * 0x1p-24f
                                         : std::bit_cast<float>((magnitude << 13) + (112u << 23));
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}

inline float RoundToBf16(float value) { return Bf16ToFloat(FloatToBf16(value)); }

}  // namespace dsv4
