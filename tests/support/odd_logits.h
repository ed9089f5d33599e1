// SPDX-License-Identifier: Apache-2.0
// Rows of logits of all kinds, for tests that compare two ways of sampling.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace dsv4::test {

// A few likely tokens, noise, or few different values; some rows with infinities and NaNs.
inline std::vector<float> OddLogits(int64_t vocab, std::mt19937& random) {
  std::normal_distribution<float> normal;
  const float spreads[] = {0.01f, 1, 3, 8, 1e4f, 1e37f};
  const float spread = spreads[random() % 6];
  const bool coarse = random() % 3 == 0, holes = random() % 3 == 0;
  const float odd[] = {std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity(),
                       std::numeric_limits<float>::quiet_NaN(),
                       std::numeric_limits<float>::max(),
                       0.0f,
                       -0.0f,
                       std::numeric_limits<float>::denorm_min()};
  std::vector<float> logits(static_cast<size_t>(vocab));
  for (float& logit : logits) {
    logit = normal(random) * spread;
    if (coarse) logit = std::round(logit / spread * 2) * spread / 2;
    if (holes && random() % 4 == 0) logit = odd[random() % (random() % 20 == 0 ? 7 : 3)];
  }
  // Logits of a confident model.
  if (random() % 2 == 0) {
    for (int i = 0; i < 5; ++i) logits[random() % logits.size()] = spread * (4 + i % 3);
  }
  return logits;
}

// Some of the tokens, or all.
inline std::vector<uint32_t> AnyMask(int64_t vocab, std::mt19937& random) {
  std::vector<uint32_t> mask(static_cast<size_t>((vocab + 31) / 32), ~uint32_t{0});
  const uint32_t kind = random() % 4;
  for (uint32_t& word : mask) {
    if (kind == 1) word = static_cast<uint32_t>(random());
    if (kind == 2) word = random() % 8 == 0 ? 1u << random() % 32 : 0;
  }
  return mask;
}

}  // namespace dsv4::test
