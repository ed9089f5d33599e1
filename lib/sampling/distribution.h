// SPDX-License-Identifier: Apache-2.0
// A probability distribution over tokens and what can be drawn from it. How logits become one is
// sampler.h's matter.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace dsv4 {

// In proportion to its weight; all weights of a distribution have one scale. The sampler's are
// TokenWeight's, whose sums are exact in any order.
struct Candidate {
  int32_t token;
  float weight;
};

// Candidates in ascending token order, each of positive weight; the others have probability 0.
class Distribution {
 public:
  // Empty, with room for `vocab` candidates, which is all that it will ever allocate.
  explicit Distribution(int64_t vocab);

  // All mass on one token.
  void SetPoint(int32_t token);
  // Takes the candidates that `fill(std::vector<Candidate>*)` leaves in the vector it is given,
  // whose content is unspecified.
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

// The token at share `uniform` of the mass, in token order. REQUIRES: at least one candidate, and a
// number in [0, 1).
int32_t Draw(const Distribution& distribution, double uniform);

}  // namespace dsv4
