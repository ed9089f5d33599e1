// SPDX-License-Identifier: Apache-2.0
#include "lib/step/step_batch.h"

#include "lib/base/status_macros.h"

namespace dsv4 {

StepBatch::StepBatch(const StepLimits& limits) {
  owners_.reserve(static_cast<size_t>(limits.sequences));
  sequences_.reserve(static_cast<size_t>(limits.sequences));
  sequence_of_.reserve(static_cast<size_t>(limits.rows));
  positions_.reserve(static_cast<size_t>(limits.rows));
  tokens_.reserve(static_cast<size_t>(limits.rows));
}

void StepBatch::Clear() {
  owners_.clear();
  sequences_.clear();
  sequence_of_.clear();
  positions_.clear();
  tokens_.clear();
}

void StepBatch::Append(const SequenceRows& rows, absl::Span<const int32_t> tokens,
                       absl::Span<const int32_t> drafts) {
  const size_t count = tokens.size() + drafts.size();
  sequence_of_.insert(sequence_of_.end(), count, sequence_count());
  for (size_t row = 0; row < count; ++row) {
    positions_.push_back(rows.first_position + static_cast<int64_t>(row));
  }
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  tokens_.insert(tokens_.end(), drafts.begin(), drafts.end());
  sequences_.push_back(rows);
}

absl::Status StepBatch::Add(KvSequence* sequence, absl::Span<const int32_t> tokens,
                            int64_t draft_slots, absl::Span<const int32_t> drafts) {
  DSV4_RETURN_IF_ERROR(sequence->Reserve(static_cast<int64_t>(tokens.size() + drafts.size()),
                                         draft_slots, !drafts.empty()));
  Append(sequence->Rows(static_cast<int32_t>(tokens_.size())), tokens, drafts);
  owners_.push_back(sequence);
  return absl::OkStatus();
}

void StepBatch::AddMtp(const KvSequence& sequence, absl::Span<const int32_t> tokens,
                       int64_t first_slot) {
  Append(sequence.MtpRows(static_cast<int32_t>(tokens_.size()), static_cast<int32_t>(tokens.size()),
                          first_slot),
         tokens);
}

void StepBatch::AddBlock(const KvSequence& sequence, absl::Span<const int32_t> tokens,
                         int64_t first_position) {
  Append(sequence.BlockRows(row_count(), static_cast<int32_t>(tokens.size()), first_position),
         tokens);
}

StepRows StepBatch::rows() const {
  return {.rows = static_cast<int32_t>(tokens_.size()),
          .sequence_count = sequence_count(),
          .sequences = sequences_.data(),
          .sequence_of = sequence_of_.data(),
          .positions = positions_.data()};
}

void StepBatch::Commit() {
  for (size_t i = 0; i < owners_.size(); ++i) {
    owners_[i]->Commit(sequences_[i].rows);
    owners_[i]->Publish({}, 0);
  }
}

}  // namespace dsv4
