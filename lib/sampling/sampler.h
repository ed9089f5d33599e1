// SPDX-License-Identifier: Apache-2.0
// Chooses a token from one row of logits. Pure functions of logits, parameters and position: no
// state, no allocation beyond the caller's scratch.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace dsv4 {

struct SamplingParams {
  float temperature = 0;  // 0 = greedy
  int32_t top_k = 0;      // 0 = all
  float top_p = 0;        // 0 = 1
  float min_p = 0;
  uint64_t seed = 0;
  int64_t max_tokens = 0;  // 0 = no limit
};

// InvalidArgument that names the field and its range.
absl::Status ValidateSampling(const SamplingParams& params);

// Room for one call of SampleToken on `vocab` logits; reserved once per session.
class SamplerScratch {
 public:
  explicit SamplerScratch(int64_t vocab);
  struct Candidate {
    float weight;
    int32_t token;
  };
  std::vector<Candidate> candidates;
};

// The token after `position` tokens: argmax when greedy (ties: lowest id), else by temperature,
// top-k, top-p (of what top-k left), min-p, renormalise, and one uniform number of Philox(key =
// seed, counter = position). Tokens at or beyond `token_limit` have no text and are never chosen,
// nor are logits that are not finite; without a finite one the result is Internal.
absl::StatusOr<int32_t> SampleToken(absl::Span<const float> logits, int32_t token_limit,
                                    const SamplingParams& params, uint64_t position,
                                    SamplerScratch* scratch);

}  // namespace dsv4
