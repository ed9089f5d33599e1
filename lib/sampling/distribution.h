// SPDX-License-Identifier: Apache-2.0
// A probability distribution over tokens. sampler.h computes it from logits.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace dsv4 {

// A token and its weight. Probabilities are proportional to weights. The sampler's weights are
// those of TokenWeight, so that sums are exact in any order.
struct Candidate {
  int32_t token;
  float weight;
};

// Candidates in ascending token order, with positive weights. Other tokens have probability 0.
class Distribution {
 public:
  // An empty distribution with room for `vocab` candidates. Allocates nothing afterwards.
  explicit Distribution(int64_t vocab);

  // All mass on one token.
  void SetPoint(int32_t token);
  // Calls `fill(std::vector<Candidate>*)`, which sets the candidates. The vector's content before
  // is undefined.
  template <class Fill>
  void Assign(Fill&& fill) {
    fill(&candidates_);
    SumMass();
  }

  absl::Span<const Candidate> candidates() const { return candidates_; }
  double mass() const { return mass_; }

 private:
  void SumMass();

  std::vector<Candidate> candidates_;
  double mass_ = 0;  // sum of the weights, in their order
};

// The token at `uniform` times the mass, in token order. REQUIRES: at least one candidate;
// `uniform` in [0, 1).
int32_t Draw(const Distribution& distribution, double uniform);

}  // namespace dsv4
