// SPDX-License-Identifier: Apache-2.0
// A call's request for one timeline. The same object goes from the session through the scheduler
// and the step runner to the drafter; each of them has its own fields.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "lib/step/draft_pace.h"
#include "lib/step/timeline_step.h"

namespace dsv4 {

class StepCall;

// Lives until the call is done. Not movable.
struct StepRequest {
  Timeline* timeline = nullptr;
  int64_t tokens = 0;     // pending tokens to compute; 1 when a token is to be chosen
  bool choose = false;    // the tokens after them
  bool one_step = false;  // done after one step, however few of the tokens it computed
  absl::Status status{};  // how it ended

  // The scheduler's.
  StepCall* call = nullptr;
  int64_t last_step = 0;    // that took it
  int64_t step_tokens = 0;  // pending tokens that the step being put together computes
  StepOutcome outcome{};    // of the last step

  // The step runner's.
  std::optional<TimelineStep> step{};  // while the timeline takes part in a step
  int32_t logits_row = -1;             // the first of its rows of logits; -1: none
  // The drafter's.
  int32_t draft_row = -1;  // the row of the drafter's pass that the next draft follows
  bool drafting = false;
  DraftPace::Drafts drafts{};
};

}  // namespace dsv4
