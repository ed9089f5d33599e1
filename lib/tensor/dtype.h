// SPDX-License-Identifier: Apache-2.0
// Element types of stored tensors and activations, and the bit conversions of bf16. The 8-bit and
// 4-bit formats are in quant_format.h.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace dsv4 {

// kOther: any type that no tensor of the model has. Its elements are never looked at.
enum class DType : uint8_t { kF32, kF16, kBF16, kF8E4M3, kF8E8M0, kI8, kU8, kI32, kI64, kOther };

// Bytes of one stored element, 1 of kOther (kI8 weights hold two FP4 values a byte: their shape
// counts bytes).
int64_t DTypeBytes(DType dtype);

// The safetensors name: "F32", "BF16", "F8_E4M3", ...; nullopt for all that are kOther.
absl::string_view DTypeName(DType dtype);
std::optional<DType> DTypeFromName(absl::string_view name);

inline float Bf16ToFloat(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// Round to nearest even; NaN stays NaN.
inline uint16_t FloatToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float RoundToBf16(float value) { return Bf16ToFloat(FloatToBf16(value)); }

}  // namespace dsv4
