// SPDX-License-Identifier: Apache-2.0
// Contract of draft_logits: the Markov and confidence heads of a DSpark drafter, which say what the
// token before a draft makes of the draft's logits, and how sure the drafter is there.
#pragma once

#include "kernels/op/op.h"

namespace dsv4 {

// With r = row_of[i] and t = tokens[i]: logits[r] += weight . embed[t], and confidences[r] =
// confidence . [hidden rows of r; embed[t]], sums in f32. Rows are distinct.
struct DraftLogitsParams {
  static constexpr Op kOp = Op::kDraftLogits;
  int32_t rows = 0;  // n
  int64_t vocab = 0, hidden = 0, rank = 0;
  const int32_t* row_of = nullptr;  // [n]; below 0: nothing is done
  // [n] in [0, vocab); below 0: chosen[-1 - token], and nothing is done where that is below 0.
  const int32_t* tokens = nullptr;
  const int32_t* chosen = nullptr;       // as TokenCandidatesParams has it; may be null
  const uint16_t* embed = nullptr;       // [vocab, rank] bf16: markov_w1
  const uint16_t* weight = nullptr;      // [vocab, rank] bf16: markov_w2
  const uint16_t* confidence = nullptr;  // [hidden + rank] bf16
  const void* states = nullptr;          // [R, hidden] act
  float* logits = nullptr;               // [R, vocab]
  float* confidences = nullptr;          // [R]; may be memory of the host that the device writes

  // The token before row i of the call, below 0 where nothing is to be done.
  constexpr int32_t TokenOf(int32_t i) const {
    if (row_of[i] < 0) return -1;
    return tokens[i] >= 0 ? tokens[i] : chosen[-1 - tokens[i]];
  }
};

absl::Status Validate(const DraftLogitsParams& params);
Cost CostOf(const DraftLogitsParams& params);

}  // namespace dsv4
