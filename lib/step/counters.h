// SPDX-License-Identifier: Apache-2.0
// Counters of an engine's scheduler and sessions since it was opened. metrics.h reports them.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

#include "lib/step/logit_watch.h"

namespace dsv4 {

// Counters of the scheduler.
struct StepCounts {
  int64_t steps = 0, step_tokens = 0;  // tokens: of prompts, decoded ones and drafts
  double step_seconds = 0;
  // Steps that decoded for one session alone: tokens that they decided, accepted drafts included.
  int64_t lone_tokens = 0;
  double lone_seconds = 0;
  int64_t cancelled_requests = 0, failed_requests = 0;               // parts of sessions in steps
  int64_t draft_steps = 0, drafted_tokens = 0, accepted_tokens = 0;  // of drafts verified
  int32_t waiting_requests = 0;  // now, including those in the running step
  bool device_lost = false;
};

// Counters of the sessions. Any thread.
struct SessionCounters {
  std::atomic<int64_t> prefilled_tokens{0}, generated_tokens{0};
  std::atomic<int64_t> prompt_tokens{0}, reused_tokens{0}, prefix_cache_tokens{0};  // of syncs
  std::array<std::atomic<int64_t>, kAlarmKinds> alarms{};  // times each was raised
  void CountAlarm(Alarm alarm) {
    const int kind = std::countr_zero(static_cast<uint32_t>(alarm));
    alarms[static_cast<size_t>(kind)].fetch_add(1, std::memory_order_relaxed);
  }
};

}  // namespace dsv4
