// SPDX-License-Identifier: Apache-2.0
#include "lib/runtime/step_batch.h"

#include "lib/base/status_macros.h"

namespace dsv4 {

StepBatch::StepBatch(const StepLimits& limits) {
  owners_.reserve(limits.sequences);
  sequences_.reserve(limits.sequences);
  sequence_of_.reserve(limits.rows);
  positions_.reserve(limits.rows);
  tokens_.reserve(limits.rows);
}

void StepBatch::Clear() {
  owners_.clear();
  sequences_.clear();
  sequence_of_.clear();
  positions_.clear();
  tokens_.clear();
}

absl::Status StepBatch::Add(KvSequence* sequence, absl::Span<const int32_t> tokens) {
  const int32_t rows = static_cast<int32_t>(tokens.size());
  DSV4_RETURN_IF_ERROR(sequence->Reserve(rows));
  const SequenceRows added = sequence->Rows(static_cast<int32_t>(tokens_.size()), rows);
  sequence_of_.insert(sequence_of_.end(), rows, static_cast<int32_t>(sequences_.size()));
  for (int32_t row = 0; row < rows; ++row) positions_.push_back(added.first_position + row);
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  sequences_.push_back(added);
  owners_.push_back(sequence);
  return absl::OkStatus();
}

StepRows StepBatch::rows() const {
  return {.rows = static_cast<int32_t>(tokens_.size()),
          .sequence_count = static_cast<int32_t>(sequences_.size()),
          .sequences = sequences_.data(),
          .sequence_of = sequence_of_.data(),
          .positions = positions_.data()};
}

void StepBatch::Commit() {
  for (size_t i = 0; i < owners_.size(); ++i) owners_[i]->Commit(sequences_[i].rows);
}

}  // namespace dsv4
