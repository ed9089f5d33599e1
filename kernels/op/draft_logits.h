// SPDX-License-Identifier: Apache-2.0
// Contract of draft_logits: the Markov and confidence heads of a DSpark drafter. The Markov head
// adds to the logits of a draft what follows from the token before it; the confidence head says how
// sure the drafter is.
#pragma once

#include "kernels/op/launch_tensors.h"
#include "kernels/op/op.h"

namespace dsv4 {

// For each i with r = row_of[i] and t = tokens[i]:
//   logits[r] += weight . embed[t]
//   confidences[r] = confidence . [states[r]; embed[t]]
// Sums in f32. REQUIRES: the r are distinct.
struct DraftLogitsParams {
  static constexpr Op kOp = Op::kDraftLogits;
  int32_t rows = 0;  // n
  int64_t vocab = 0, hidden = 0, rank = 0;
  const int32_t* row_of = nullptr;  // [n]; i is skipped where it is negative
  // [n], each in [0, vocab). A negative entry means chosen[-1 - entry]; i is skipped if that is
  // negative, too.
  const int32_t* tokens = nullptr;
  // TokenCandidatesParams::chosen. May be null if no entry of tokens is negative.
  const int32_t* chosen = nullptr;
  const uint16_t* embed = nullptr;       // [vocab, rank] bf16: markov_w1
  const uint16_t* weight = nullptr;      // [vocab, rank] bf16: markov_w2
  const uint16_t* confidence = nullptr;  // [hidden + rank] bf16
  const void* states = nullptr;          // [R, hidden] act
  float* logits = nullptr;               // [R, vocab]
  float* confidences = nullptr;          // [R]; may be host memory that the device can write

  // The token before draft i of the call; negative where i is skipped.
  constexpr int32_t TokenOf(int32_t i) const {
    if (row_of[i] < 0) return -1;
    return tokens[i] >= 0 ? tokens[i] : chosen[-1 - tokens[i]];
  }
};

absl::Status Validate(const DraftLogitsParams& params);
Cost CostOf(const DraftLogitsParams& params);
LaunchTensors TensorsOf(const DraftLogitsParams& params, Device& device);

}  // namespace dsv4
