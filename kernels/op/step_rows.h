// SPDX-License-Identifier: Apache-2.0
// The rows of one step: a ragged batch of prefill chunks and decode rows of several sequences. Row
// r of every [T, ...] tensor belongs to one sequence; a sequence's rows are consecutive positions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/op/kv_layout.h"

namespace dsv4 {

// Where a step leaves the compressor states of a sequence as they are after its first `row` rows.
struct StateToSave {
  int32_t row = 0;  // 1 .. SequenceRows.rows
  int32_t slot = kNoBlock;
};

// Blocks and state slots are numbers, the same ones on every device of an engine; each device has
// the memory behind them in pools of its own (kernels/op/kv_layout.h).

struct SequenceRows {
  int32_t first_row = 0;
  int32_t rows = 0;  // >= 1; 0: padding of a step that a graph runs
  int64_t first_position = 0;
  const int32_t* window_blocks = nullptr;  // entry p / 64: block with the window row of position p
  const int32_t* compressed_kv_blocks =
      nullptr;  // entry p / 256: block with the compressed blocks that end at p
  // Positions below it have no window row: the first query's window may begin later than 127 rows
  // before it. <= first_position.
  int64_t window_begin = 0;
  // The slots of the compressor states before the step, and where they go: ascending rows, the last
  // one `rows`. All distinct, so that a step that is abandoned, or rolled back to a saved state,
  // leaves the state it resumes from as it was. A sequence whose layers have no compressor (the MTP
  // layer's rows) needs none of it.
  int32_t state_slot = kNoBlock;
  const StateToSave* saved_states = nullptr;
  int32_t saved_state_count = 0;
};

// Rope tables of the step: [T, 64] f32, 32 cosines then 32 sines of the angles of one position.
struct RopeTables {
  float* window = nullptr;      // of the row's position, rope_theta
  float* compressed = nullptr;  // of the row's position, compressed layers' frequencies
  float* ratio4 =
      nullptr;  // of position - 3, where a compressed block of 4 ends at the row; else undefined
  float* ratio128 = nullptr;  // of position - 127, where a compressed block of 128 ends at the row;
                              // else undefined
};

struct StepRows {
  int32_t rows = 0;                         // T
  int32_t sequence_count = 0;               // B
  const SequenceRows* sequences = nullptr;  // [B], in row order
  // The same on the host, with pointers of the host's, where a device has memory of its own.
  const SequenceRows* host_sequences = nullptr;
  const int32_t* sequence_of = nullptr;  // [T]; -1: padding, which no sequence's memory is for
  const int64_t* positions = nullptr;    // [T]
  int64_t max_position = 0;  // exclusive bound of every position of the engine, for workspaces
  RopeTables rope{};

  // Sequence `i`, for the host.
  const SequenceRows& sequence(int32_t i) const {
    return (host_sequences != nullptr ? host_sequences : sequences)[i];
  }
};

}  // namespace dsv4
