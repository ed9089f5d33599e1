// SPDX-License-Identifier: Apache-2.0
// Step programs: launches of one row as phases of one kernel, whose resident blocks go through them
// together; a phase's results come to the next one as words (step_words.cuh). The sums are those of
// the operators' own kernels (docs/adr/0040-step-programs.md). There are two:
// - output_groups, linear_fp8, and the update and sums of hc_pre,
// - expert_ffn of MXFP4 experts, hc_post, and the sums of the next layer's hc_pre.
// hc_pre's row follows in a launch of its own.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/op/dense.h"
#include "kernels/op/hyper_connection.h"
#include "kernels/op/moe.h"
#include "kernels/registry/launch_program.h"

namespace dsv4::sm12x {

inline constexpr int kProgramThreads = 512, kProgramShift = 4;
static_assert(32 << kProgramShift == kProgramThreads);

// Where the words of a phase's results are: bytes from a launch's first word.
using WordsAt = int32_t;
inline constexpr WordsAt kNoWords = -1;

// Products of a row: linear_fp8 of one part, or output_groups.
struct LinearPhase {
  Fp8Weight w;
  int32_t tiles, slices;  // of N; of K, for a group's columns of x
  int32_t shift;          // 2^shift warps share a tile
  int32_t group_tiles;    // output_groups: tiles of a group
  const void* x;          // output_groups: bf16
  WordsAt x_words;        // linear_fp8: bf16; the phase quantises them
  uint8_t* quantised;     // where it leaves the quantised row
  void* y;                // null: the words alone
  WordsAt y_words;
};

// The update of `p` and the sums of its chunks; without chunk_sums the update alone.
struct MixPhase {
  HcPreParams p;
  WordsAt y_words;  // of the update
  float* chunk_sums;
};

struct ExpertPhase {
  ExpertFfnParams p;
  WordsAt hidden_words;  // [K + 1, I]: row 0 is the shared expert, row 1 + i is expert i of the row
  WordsAt y_words;       // kNoWords: nothing follows
};

// Makes step programs of launches of one row, where LaunchContext::marked is there.
std::unique_ptr<LaunchProgram> MakeStepProgram();

// In hc_pre.cu: what is left of hc_pre when the update and the sums, in its workspace, are there.
void LaunchHcPreRow(const LaunchContext& context, const HcPreParams& p);

}  // namespace dsv4::sm12x
