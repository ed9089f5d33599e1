// SPDX-License-Identifier: Apache-2.0
// The rows of one step: a ragged batch of prefill chunks and decode rows of several sequences. Row
// r of every [T, ...] tensor belongs to one sequence; a sequence's rows are consecutive positions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/op/kv_layout.h"

namespace dsv4 {

struct SequenceRows {
  int32_t first_row = 0;
  int32_t rows = 0;  // >= 1
  int64_t first_position = 0;
  const int32_t* window_blocks = nullptr;  // entry p / 64: block with the window row of position p
  const int32_t* group_blocks = nullptr;   // entry p / 256: block with the groups that end at p
  // The session's compressor states before and after this step; distinct memory, so that a step
  // that is abandoned leaves the state as it was. Each layer adds its own offset.
  const std::byte* state_in = nullptr;
  std::byte* state_out = nullptr;
};

// Rope tables of the step: [T, 64] f32, 32 cosines then 32 sines of the angles of one position.
struct RopeTables {
  float* window = nullptr;      // of the row's position, rope_theta
  float* compressed = nullptr;  // of the row's position, compressed layers' frequencies
  float* group4 = nullptr;  // of position - 3, where a group of 4 ends at the row; else undefined
  float* group128 =
      nullptr;  // of position - 127, where a group of 128 ends at the row; else undefined
};

struct StepRows {
  int32_t rows = 0;                         // T
  int32_t sequence_count = 0;               // B
  const SequenceRows* sequences = nullptr;  // [B], in row order
  const int32_t* sequence_of = nullptr;     // [T]
  const int64_t* positions = nullptr;       // [T]
  int64_t max_position = 0;  // exclusive bound of every position of the engine, for workspaces
  RopeTables rope{};
};

}  // namespace dsv4
