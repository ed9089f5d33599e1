// SPDX-License-Identifier: Apache-2.0
// The ragged batch of one pass: the rows of each sequence. Memory is reserved for the engine's
// limits, so a step allocates nothing.
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
  // Adds the next `tokens` of `sequence`, then `drafts`, and reserves blocks for them.
  // - drafts: each of their rows, and the row before, can become the last committed one.
  // - draft_slots: how many slots behind the rows MTP passes may use.
  // Errors, which leave the batch unchanged: those of KvSequence::Reserve. REQUIRES: the limits
  // hold; the sequence outlives the step.
  absl::Status Add(KvSequence* sequence, absl::Span<const int32_t> tokens, int64_t draft_slots = 0,
                   absl::Span<const int32_t> drafts = {});
  // Adds `tokens` of `sequence` to a pass of an MTP block, from slot `first_slot` on. REQUIRES: as
  // of KvSequence::MtpRows.
  void AddMtp(const KvSequence& sequence, absl::Span<const int32_t> tokens, int64_t first_slot);

  // Adds a block of `tokens` behind `sequence`, from `first_position` on. REQUIRES: as of
  // KvSequence::BlockRows.
  void AddBlock(const KvSequence& sequence, absl::Span<const int32_t> tokens,
                int64_t first_position);

  int32_t row_count() const { return static_cast<int32_t>(tokens_.size()); }
  bool empty() const { return sequences_.empty(); }
  // The batch, for the model; valid until the next change.
  StepRows rows() const;
  const int32_t* tokens() const { return tokens_.data(); }
  const SequenceRows& sequence(int32_t index) const {
    return sequences_[static_cast<size_t>(index)];
  }
  int32_t sequence_count() const { return static_cast<int32_t>(sequences_.size()); }
  // The last row of the `index`-th sequence added.
  int32_t last_row(int32_t index) const {
    return sequence(index).first_row + sequence(index).rows - 1;
  }
  // Commits all rows to their sequences, unpublished. Called after the forward pass has succeeded.
  void Commit();

 private:
  void Append(const SequenceRows& rows, absl::Span<const int32_t> tokens,
              absl::Span<const int32_t> drafts = {});

  std::vector<KvSequence*> owners_;
  std::vector<SequenceRows> sequences_;
  std::vector<int32_t> sequence_of_;
  std::vector<int64_t> positions_;
  std::vector<int32_t> tokens_;
};

}  // namespace dsv4
