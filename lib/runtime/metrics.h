// SPDX-License-Identifier: Apache-2.0
// What an engine has done since it was opened, and what it holds: for hosts that show or scrape it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "lib/kv/kv_cache.h"
#include "lib/model/expert_mover.h"
#include "lib/runtime/logit_watch.h"

namespace dsv4 {

class Engine;

// Of steps, which the scheduler counts.
struct StepCounts {
  int64_t steps = 0, step_tokens = 0;  // tokens: of prompts, decoded ones and drafts
  double step_seconds = 0;
  int64_t cancelled_requests = 0, failed_requests = 0;               // parts of sessions in steps
  int64_t draft_steps = 0, drafted_tokens = 0, accepted_tokens = 0;  // of drafts verified
  int32_t waiting_requests = 0;  // now, those of the running step among them
  bool device_lost = false;
};

// What sessions count, on any thread.
struct SessionCounters {
  std::atomic<int64_t> prefilled_tokens{0}, generated_tokens{0};
  std::atomic<int64_t> prompt_tokens{0}, reused_tokens{0}, prefix_cache_tokens{0};  // of syncs
  std::array<std::atomic<int64_t>, kAlarmKinds> alarms{};  // sessions' prompts that raised them
};

struct EngineMetrics {
  StepCounts steps;
  int64_t prefilled_tokens = 0, generated_tokens = 0;
  int64_t prompt_tokens = 0, reused_tokens = 0, prefix_cache_tokens = 0;
  int64_t exchanged_bytes = 0;                // that each device gathered
  std::array<int64_t, kAlarmKinds> alarms{};  // by the bit of Alarm
  KvUse cache;
  ExpertTraffic experts;
  bool suspended = false;
  int64_t host_read_bytes = 0;  // of experts, by all devices
};

// Concurrent with everything. Takes the mutexes of scheduler and cache for a copy of a few numbers;
// nothing is held while a step computes.
EngineMetrics MetricsOf(const Engine& engine);

// The same with the settings that explain it, as one line of JSON.
std::string MetricsJson(const Engine& engine);

}  // namespace dsv4
