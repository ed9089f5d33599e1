// SPDX-License-Identifier: Apache-2.0
// Candidates as two tensors, for tests/support/worst_element.h.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "lib/sampling/distribution.h"

namespace dsv4::test {

struct CandidateColumns {
  explicit CandidateColumns(absl::Span<const Candidate> candidates) {
    for (const Candidate& candidate : candidates) {
      tokens.push_back(candidate.token);
      weights.push_back(candidate.weight);
    }
  }
  std::vector<int32_t> tokens;
  std::vector<float> weights;
};

}  // namespace dsv4::test
