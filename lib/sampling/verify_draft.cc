// SPDX-License-Identifier: Apache-2.0
#include "lib/sampling/verify_draft.h"

#include "lib/sampling/rng.h"

namespace dsv4 {

Verdict VerifyDraft(const Distribution& p, const Distribution& q, int32_t draft, uint64_t seed,
                    uint64_t position) {
  // u < p / q without the division; u < 1, so a ratio of 1 always passes.
  const double uniform = Uniform(seed, position, DrawKind::kAcceptance);
  if (uniform * Probability(q, draft) < Probability(p, draft)) return {draft, true};
  return {DrawResidual(p, q, Uniform(seed, position, DrawKind::kResidual)), false};
}

}  // namespace dsv4
