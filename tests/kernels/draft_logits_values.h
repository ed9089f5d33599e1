// SPDX-License-Identifier: Apache-2.0
// A call of draft_logits with its values, and what it makes of them in double.
#pragma once

#include <vector>

#include "kernels/op/draft_logits.h"
#include "lib/tensor/quant_format.h"
#include "tests/kernels/random_weights.h"
#include "tests/support/catch.h"
#include "tests/support/worst_element.h"

namespace dsv4::test {

// Five rows of logits and a call with four rows: one after a token, one after the token that was
// chosen for row 1, one after a row without a choice, and padding.
struct DraftLogitsValues {
  static constexpr int64_t kRows = 5, kVocab = 1003, kHidden = 136, kRank = 24;
  static constexpr float kUntouched = -77;
  std::vector<uint16_t> embed = RandomNorm(1, kVocab*kRank), weight = RandomNorm(2, kVocab*kRank),
                        confidence = RandomNorm(3, kHidden + kRank),
                        states = RandomNorm(4, kRows*kHidden);
  std::vector<float> logits = RandomFloats(5, kRows* kVocab);
  std::vector<float> confidences = std::vector<float>(kRows, kUntouched);
  std::vector<int32_t> row_of = {3, 0, 4, -1}, tokens = {7, -2, -1, 5}, chosen = {-1, 1002};

  DraftLogitsParams Params() const {
    return {.rows = 4, .vocab = kVocab, .hidden = kHidden, .rank = kRank};
  }

  // By hand: row 3 after token 7, row 0 after token 1002.
  struct Expected {
    std::vector<double> logits, confidences;
  };
  Expected Want() const {
    Expected want{{logits.begin(), logits.end()}, {confidences.begin(), confidences.end()}};
    for (const auto& [row, token] : {std::pair<int64_t, int64_t>{3, 7}, {0, 1002}}) {
      const auto value = [](const std::vector<uint16_t>& from, int64_t at) {
        return double{Bf16ToFloat(from[static_cast<size_t>(at)])};
      };
      for (int64_t n = 0; n < kVocab; ++n) {
        for (int64_t k = 0; k < kRank; ++k) {
          want.logits[static_cast<size_t>(row * kVocab + n)] +=
              value(weight, n * kRank + k) * value(embed, token * kRank + k);
        }
      }
      double sure = 0;
      for (int64_t k = 0; k < kHidden; ++k) {
        sure += value(confidence, k) * value(states, row * kHidden + k);
      }
      for (int64_t k = 0; k < kRank; ++k) {
        sure += value(confidence, kHidden + k) * value(embed, token * kRank + k);
      }
      want.confidences[static_cast<size_t>(row)] = sure;
    }
    return want;
  }
};

inline void RequireNear(const std::vector<float>& got, const std::vector<double>& want) {
  REQUIRE(FarElements(got, want, {.relative = 1e-5, .absolute = 1e-5}) == "");
}

}  // namespace dsv4::test
