// SPDX-License-Identifier: Apache-2.0
// Speculative sampling (Leviathan et al., "Fast inference from transformers via speculative
// decoding"): one draft token held against the model's own distribution, so that what is kept
// follows that distribution whatever drafted.
#pragma once

#include <cstdint>

#include "lib/sampling/distribution.h"

namespace dsv4 {

struct Verdict {
  int32_t token;  // of this position: the draft, or its replacement
  bool accepted;  // the next draft may be looked at
};

// Decides about the token at `position`, for which `draft` was drawn from `q` and the model says
// `p`, both shaped with the same history (the drafts before it included) and rules. Accepts with
// probability min(1, p / q), else draws from the normalised positive part of p - q. A greedy `p` is
// a point, so that the draft is accepted exactly if it is the argmax. A drafter without
// probabilities of its own has a `q` that is a point on the draft. Positions are to be decided in
// order and only while accepted; when all are, the next token is a plain draw from the last p.
// REQUIRES: Probability(q, draft) > 0.
Verdict VerifyDraft(const Distribution& p, const Distribution& q, int32_t draft, uint64_t seed,
                    uint64_t position);

}  // namespace dsv4
