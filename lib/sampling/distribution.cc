// SPDX-License-Identifier: Apache-2.0
#include "lib/sampling/distribution.h"

#include <cstddef>

namespace dsv4 {
Distribution::Distribution(int64_t vocab) { candidates_.reserve(static_cast<size_t>(vocab)); }

void Distribution::SetPoint(int32_t token) {
  candidates_.assign(1, {token, 1.0f});
  mass_ = 1;
}

void Distribution::SumMass() {
  mass_ = 0;
  for (const Candidate& candidate : candidates_) mass_ += candidate.weight;
}

int32_t Draw(const Distribution& distribution, double uniform) {
  const double wanted = uniform * distribution.mass();
  double mass = 0;
  for (const Candidate& candidate : distribution.candidates()) {
    mass += candidate.weight;
    if (mass > wanted) return candidate.token;
  }
  return distribution.candidates().back().token;
}

}  // namespace dsv4
