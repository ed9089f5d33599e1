// SPDX-License-Identifier: Apache-2.0
// The weight of a token in a draw, with the same bits in the sampler and in token_candidates.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace dsv4 {

// e^x for x <= 0, rounded to a multiple of 2^-32; the error is at most 2^-23.
// - Sums of a vocabulary's weights are exact in double, in any order.
// - Consists of additions and multiplications of doubles: it has the same bits wherever the
//   compiler contracts none of them, and loops over it can be vectorised.
constexpr float TokenWeight(float x) {
  constexpr double kTaylor[] = {1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0};
  // Adding and subtracting one of these rounds to the nearest integer.
  constexpr double kSigned = 0x1.8p52, kUnsigned = 0x1p52;
  // e^x rounds to 0 below -23. A minimum of bits needs no branch.
  constexpr uint32_t kLeast = std::bit_cast<uint32_t>(-23.0f);
  const float held = std::bit_cast<float>(std::min(std::bit_cast<uint32_t>(x), kLeast));
  const double exponent = double{held} * 1.4426950408889634;
  const double shifted = exponent + kSigned;  // its lowest bits are that integer
  const double rest = (exponent - (shifted - kSigned)) * 0.6931471805599453;
  double power = 1.0 / 5040;
  for (const double factor : kTaylor) power = power * rest + factor;
  const double scale =
      std::bit_cast<double>((std::bit_cast<uint64_t>(shifted) + (1023 + 32)) << 52);
  return static_cast<float>((power * scale + kUnsigned) - kUnsigned) * 0x1p-32f;
}

// A weight as a multiple of 2^-32, and back.
constexpr uint64_t WeightUnits(float weight) { return static_cast<uint64_t>(weight * 0x1p32f); }
constexpr double MassOfUnits(uint64_t units) { return static_cast<double>(units) * 0x1p-32; }

}  // namespace dsv4
