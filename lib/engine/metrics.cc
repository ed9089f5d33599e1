// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/metrics.h"

#include <atomic>

#include "lib/engine/engine.h"

namespace dsv4 {
EngineMetrics MetricsOf(const Engine& engine) {
  EngineMetrics metrics;
  metrics.steps = engine.scheduler().counts();
  const SessionCounters& sessions = engine.counters();
  const auto read = [](const std::atomic<int64_t>& counter) {
    return counter.load(std::memory_order_relaxed);
  };
  metrics.prefilled_tokens = read(sessions.prefilled_tokens);
  metrics.generated_tokens = read(sessions.generated_tokens);
  metrics.prompt_tokens = read(sessions.prompt_tokens);
  metrics.reused_tokens = read(sessions.reused_tokens);
  metrics.prefix_cache_tokens = read(sessions.prefix_cache_tokens);
  metrics.exchanged_bytes = metrics.steps.step_tokens * engine.info().exchange.bytes;
  for (size_t kind = 0; kind < metrics.alarms.size(); ++kind) {
    metrics.alarms[kind] = read(sessions.alarms[kind]);
  }
  metrics.cache = engine.cache().use();
  metrics.suspended = engine.suspended();
  metrics.experts = engine.expert_traffic();
  metrics.predicted_decode = engine.predicted_decode();
  metrics.second_set_operators = static_cast<int64_t>(engine.info().second_set_operators.size());
  const StepCounts& steps = metrics.steps;
  if (steps.lone_tokens >= kMeasuredTokens && steps.lone_seconds > 0) {
    metrics.measured_decode = static_cast<double>(steps.lone_tokens) / steps.lone_seconds;
  }
  return metrics;
}

}  // namespace dsv4
