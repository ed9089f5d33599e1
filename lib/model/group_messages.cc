// SPDX-License-Identifier: Apache-2.0
#include "lib/model/group_messages.h"

#include "lib/base/checked_math.h"
#include "lib/base/status_macros.h"
#include "lib/kv/window_reach.h"
#include "lib/model/step_upload.h"

namespace dsv4 {

MessageWriter& MessageWriter::AddStep(const StepRows& step, const int32_t* tokens) {
  const auto rows = static_cast<size_t>(step.rows);
  AddList(absl::MakeConstSpan(tokens, rows));
  AddList(absl::MakeConstSpan(step.sequence_of, rows));
  AddList(absl::MakeConstSpan(step.positions, rows));
  Add(step.sequence_count);
  for (int32_t i = 0; i < step.sequence_count; ++i) {
    const SequenceRows& sequence = step.sequence(i);
    const StepTables tables = TablesOf(sequence);
    Add(sequence);
    AddList(tables.windows);
    AddList(tables.compressed);
    AddList(absl::MakeConstSpan(sequence.state_writes,
                                static_cast<size_t>(sequence.state_write_count)));
  }
  return *this;
}

absl::Status MessageReader::TakeStep(ReceivedStep* step) {
  *step = {};
  DSV4_ASSIGN_OR_RETURN(step->tokens, TakeList<int32_t>());
  DSV4_ASSIGN_OR_RETURN(step->sequence_of, TakeList<int32_t>());
  DSV4_ASSIGN_OR_RETURN(step->positions, TakeList<int64_t>());
  DSV4_ASSIGN_OR_RETURN(const int32_t sequences, Take<int32_t>());
  for (int32_t i = 0; i < sequences; ++i) {
    DSV4_ASSIGN_OR_RETURN(SequenceRows sequence, Take<SequenceRows>());
    const int64_t first_window = FirstWindowEntry(sequence);
    DSV4_ASSIGN_OR_RETURN(const std::vector<int32_t> windows, TakeList<int32_t>());
    std::vector<int32_t>& table =
        step->tables.emplace_back(static_cast<size_t>(first_window), kNoBlock);
    table.insert(table.end(), windows.begin(), windows.end());
    sequence.window_blocks = table.data();
    const bool grouped = sequence.compressed_kv_blocks != nullptr;
    DSV4_ASSIGN_OR_RETURN(std::vector<int32_t> groups, TakeList<int32_t>());
    step->tables.push_back(std::move(groups));
    sequence.compressed_kv_blocks = grouped ? step->tables.back().data() : nullptr;
    DSV4_ASSIGN_OR_RETURN(std::vector<StateWrite> state_writes, TakeList<StateWrite>());
    step->state_writes.push_back(std::move(state_writes));
    sequence.state_writes =
        sequence.state_writes == nullptr ? nullptr : step->state_writes.back().data();
    step->sequences.push_back(sequence);
  }
  step->step = {.rows = static_cast<int32_t>(step->tokens.size()),
                .sequence_count = sequences,
                .sequences = step->sequences.data(),
                .sequence_of = step->sequence_of.data(),
                .positions = step->positions.data()};
  return absl::OkStatus();
}

}  // namespace dsv4
