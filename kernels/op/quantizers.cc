// SPDX-License-Identifier: Apache-2.0
#include "kernels/op/quantizers.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "lib/tensor/quant_format.h"

namespace dsv4 {
namespace {

constexpr uint32_t kSignBit = 0x80000000u;

// 2^ceil(log2(value)) of a positive normal number: its exponent, plus one if any mantissa bit is
// set.
float PowerOfTwoCeil(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t exponent = (bits >> 23) + ((bits & 0x7fffffu) != 0 ? 1 : 0);
  return std::bit_cast<float>(exponent << 23);
}

float LargestMagnitude(const float* values, int64_t count, float floor) {
  float largest = floor;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::fabs(values[i]));
  return largest;
}

}  // namespace

uint8_t EncodeE4M3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & ~kSignBit;
  const uint8_t sign = bits & kSignBit ? 0x80 : 0;
  if (magnitude > 0x7f800000u) return sign | 0x7f;
  const float absolute = std::bit_cast<float>(magnitude);
  if (absolute >= 448.0f) return sign | 0x7e;
  // Below the smallest normal number, 2^-6, codes count steps of 2^-9, the spacing of floats from
  // 2^14 on: the addition rounds to nearest even.
  if (absolute < 0x1p-6f) {
    return sign | static_cast<uint8_t>(std::bit_cast<uint32_t>(absolute + 0x1p14f) -
                                       std::bit_cast<uint32_t>(0x1p14f));
  }
  const uint32_t rounded = (magnitude + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20;
  return sign | static_cast<uint8_t>(std::min(rounded - ((127 - 7) << 3), 0x7eu));
}

uint8_t EncodeE2M1(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & ~kSignBit;
  const uint8_t sign = bits & kSignBit ? 8 : 0;
  const float absolute = std::bit_cast<float>(magnitude);
  if (!(absolute < 6.0f)) return sign | 7;
  // As in EncodeE4M3: the smallest normal number is 1, steps are 0.5, the spacing from 2^22 on.
  if (absolute < 1.0f) {
    return sign | static_cast<uint8_t>(std::bit_cast<uint32_t>(absolute + 0x1p22f) -
                                       std::bit_cast<uint32_t>(0x1p22f));
  }
  const uint32_t rounded = (magnitude + 0x1fffffu + ((magnitude >> 22) & 1u)) >> 22;
  return sign | static_cast<uint8_t>(rounded - ((127 - 1) << 1));
}

float E4M3RunScale(const float* values, int64_t count) {
  return PowerOfTwoCeil(LargestMagnitude(values, count, 1e-4f) / 448.0f);
}

float E2M1RunScale(const float* values, int64_t count) {
  return PowerOfTwoCeil(LargestMagnitude(values, count, 6 * 0x1p-126f) / 6.0f);
}

void ActQuant(float* values, int64_t count, int64_t run) {
  const float* decoded = E4M3Table();
  for (int64_t begin = 0; begin < count; begin += run) {
    const float scale = E4M3RunScale(values + begin, run);
    for (int64_t i = begin; i < begin + run; ++i) {
      values[i] = decoded[EncodeE4M3(values[i] / scale)] * scale;
    }
  }
}

void Fp4ActQuant(float* values, int64_t count) {
  for (int64_t begin = 0; begin < count; begin += kFp4Run) {
    const float scale = E2M1RunScale(values + begin, kFp4Run);
    for (int64_t i = begin; i < begin + kFp4Run; ++i) {
      values[i] = E2M1ToFloat(EncodeE2M1(values[i] / scale)) * scale;
    }
  }
}

const float* E4M3Table() {
  static const std::array<float, 256> table = [] {
    std::array<float, 256> values;
    for (int bits = 0; bits < 256; ++bits) values[bits] = E4M3ToFloat(static_cast<uint8_t>(bits));
    return values;
  }();
  return table.data();
}

}  // namespace dsv4
