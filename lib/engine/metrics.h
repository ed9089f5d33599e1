// SPDX-License-Identifier: Apache-2.0
// Counters of an engine since it was opened, and its present state, for monitoring.
#pragma once

#include <array>
#include <cstdint>

#include "lib/experts/expert_residency.h"
#include "lib/kv/kv_cache.h"
#include "lib/step/counters.h"
#include "lib/step/logit_watch.h"

namespace dsv4 {

class Engine;

// Tokens after which the speed of decoding is reported.
inline constexpr int64_t kMeasuredTokens = 256;

struct EngineMetrics {
  StepCounts steps;
  int64_t prefilled_tokens = 0, generated_tokens = 0;
  int64_t prompt_tokens = 0, reused_tokens = 0, prefix_cache_tokens = 0;
  int64_t exchanged_bytes = 0;                // that each device gathered
  std::array<int64_t, kAlarmKinds> alarms{};  // by the bit of Alarm
  KvUse cache;
  ExpertTraffic experts;
  bool suspended = false;
  // Tokens per second of one session; measured: 0 before kMeasuredTokens.
  double predicted_decode = 0, measured_decode = 0;
  int64_t second_set_operators = 0;  // EngineInfo::second_set_operators
};

// Concurrent with everything. Takes the mutexes of scheduler and cache for a copy of a few numbers;
// nothing is held while a step computes.
EngineMetrics MetricsOf(const Engine& engine);

}  // namespace dsv4
