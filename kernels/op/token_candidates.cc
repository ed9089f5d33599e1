// SPDX-License-Identifier: Apache-2.0
#include "kernels/op/token_candidates.h"

#include <limits>

namespace dsv4 {

absl::Status Validate(const TokenCandidatesParams& params) {
  return Expect(
      params.rows >= 0 && params.vocab >= 1 && params.vocab <= std::numeric_limits<int32_t>::max(),
      "token_candidates: rows ", params.rows, ", vocab ", params.vocab);
}

Cost CostOf(const TokenCandidatesParams& params) {
  return {.bytes = params.rows * params.vocab * static_cast<int64_t>(sizeof(float))};
}

}  // namespace dsv4
