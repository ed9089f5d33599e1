// SPDX-License-Identifier: Apache-2.0
// Log-probabilities of tokens under the model: of its logits as they are, whatever the sampler does
// with them. Logits that are not finite have probability 0.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace dsv4 {

struct TokenLogProb {
  int32_t token;
  float log_prob;
};

// log(sum(exp(logits))): one pass for all questions about one row. -inf without a finite logit.
double LogMass(absl::Span<const float> logits);

// REQUIRES: `token` is in range; `log_mass` is LogMass(logits).
float LogProb(absl::Span<const float> logits, double log_mass, int32_t token);

// Fills `out` with the most likely tokens, most likely first, ties by the lowest id. Returns how
// many there are: out.size(), or fewer when fewer logits are finite. O(logits + finds *
// out.size()), meant for out.size() <= kMaxLogProbs.
size_t TopLogProbs(absl::Span<const float> logits, double log_mass, absl::Span<TokenLogProb> out);

}  // namespace dsv4
