// SPDX-License-Identifier: Apache-2.0
// Log-probabilities of tokens under the model's unmodified logits. Logits that are not finite have
// probability 0.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace dsv4 {

struct TokenLogProb {
  int32_t token;
  float log_prob;
};

// log(sum(exp(logits))), computed once for a row. -inf without a finite logit.
double LogMass(absl::Span<const float> logits);

// REQUIRES: `token` is in range; `log_mass` is LogMass(logits).
float LogProb(absl::Span<const float> logits, double log_mass, int32_t token);

// Fills `out` with the most likely tokens, most likely first, ties by the lowest id. Returns their
// number: out.size(), or fewer if fewer logits are finite. Meant for out.size() <= kMaxLogProbs.
size_t TopLogProbs(absl::Span<const float> logits, double log_mass, absl::Span<TokenLogProb> out);

}  // namespace dsv4
