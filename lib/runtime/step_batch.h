// SPDX-License-Identifier: Apache-2.0
// Assembles the ragged batch of one step: which rows belong to which sequence. Its memory is
// reserved for the engine's limits, so that a step allocates nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lib/kv/kv_sequence.h"
#include "lib/model/forward_context.h"
#include "lib/model/model.h"

namespace dsv4 {

class StepBatch {
 public:
  explicit StepBatch(const StepLimits& limits);

  void Clear();
  // Adds the next `tokens` of `sequence`, for which it reserves blocks: OutOfBlocks leaves the
  // batch as it was. REQUIRES: the limits hold; the sequence outlives the step.
  absl::Status Add(KvSequence* sequence, absl::Span<const int32_t> tokens);

  // The batch, for Model::Forward; valid until the next change.
  StepRows rows() const;
  const int32_t* tokens() const { return tokens_.data(); }
  // The last row of the `index`-th sequence added.
  int32_t last_row(int32_t index) const {
    return sequences_[index].first_row + sequences_[index].rows - 1;
  }
  // Makes the rows part of their sequences. To be called once the forward pass has succeeded.
  void Commit();

 private:
  std::vector<KvSequence*> owners_;
  std::vector<SequenceRows> sequences_;
  std::vector<int32_t> sequence_of_;
  std::vector<int64_t> positions_;
  std::vector<int32_t> tokens_;
};

}  // namespace dsv4
