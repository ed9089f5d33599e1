// SPDX-License-Identifier: Apache-2.0
// The rows of one step: a ragged batch of the tokens of several sequences, from prefill chunks and
// decode steps. Row r of every [T, ...] tensor is one token. A sequence's rows are consecutive and
// have consecutive positions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/op/kv_layout.h"

namespace dsv4 {

// The state slot to which a step writes a sequence's compressor states after its first `row` rows.
struct StateWrite {
  int32_t row = 0;  // 1 .. SequenceRows.rows
  int32_t slot = kNoBlock;
};

// Block and slot numbers are the same on every device of an engine. Each device has pools of its
// own (kernels/op/kv_layout.h).

struct SequenceRows {
  int32_t first_row = 0;
  int32_t rows = 0;  // >= 1; 0 for padding of a step that runs as a graph
  int64_t first_position = 0;
  // Entry p / 64: the block with the window row of position p.
  const int32_t* window_blocks = nullptr;
  // Entry p / 256: the block with the rows of compressed blocks that end at p.
  const int32_t* compressed_kv_blocks = nullptr;
  // The first position with a window row; <= first_position.
  int64_t window_begin = 0;
  // Compressor states: read from state_slot, written to the slots of state_writes (ascending rows,
  // the last one is `rows`). All slots are distinct, so that the states before the step survive if
  // the step is abandoned or rolled back. Unused if no layer has a compressor (MTP).
  int32_t state_slot = kNoBlock;
  const StateWrite* state_writes = nullptr;
  int32_t state_write_count = 0;
};

// RoPE tables of the step: [T, 64] f32. Each row has the 32 cosines, then the 32 sines of one
// position's angles.
struct RopeTables {
  float* window = nullptr;  // of the row's position, with rope_theta
  // The others have the frequencies of compressed layers.
  float* compressed = nullptr;  // of the row's position
  float* ratio4 = nullptr;      // of position - 3; undefined unless a block of 4 ends at the row
  float* ratio128 = nullptr;    // of position - 127; undefined unless a block of 128 ends there
};

struct StepRows {
  int32_t rows = 0;                         // T
  int32_t sequence_count = 0;               // B
  const SequenceRows* sequences = nullptr;  // [B], in row order
  // `sequences` with pointers to host memory, where the device has memory of its own; else null.
  const SequenceRows* host_sequences = nullptr;
  const int32_t* sequence_of = nullptr;  // [T]; -1: padding, which touches no cache row or state
  const int64_t* positions = nullptr;    // [T]
  int64_t max_position = 0;  // exclusive bound of all positions of the engine; sizes workspaces
  RopeTables rope{};

  // Sequence `i`, for the host.
  const SequenceRows& sequence(int32_t i) const {
    return (host_sequences != nullptr ? host_sequences : sequences)[i];
  }
};

}  // namespace dsv4
