// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers: Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy
// as 1, 2, 3" (SC 2011). A number is a pure function of key and counter, so it depends on no other
// draw.
#pragma once

#include <array>
#include <cstdint>

namespace dsv4 {

inline constexpr std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter,
                                                    std::array<uint32_t, 2> key) {
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// A uniform number in [0, 1), a multiple of 2^-53, for drawing the token at `position`. A draft and
// its verification use the same number, so they often draw the same token if their distributions
// are close.
inline constexpr double Uniform(uint64_t seed, uint64_t position) {
  const std::array<uint32_t, 4> bits =
      Philox4x32({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, 0},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return static_cast<double>((uint64_t{bits[1]} << 32 | bits[0]) >> 11) * 0x1p-53;
}

}  // namespace dsv4
