// SPDX-License-Identifier: Apache-2.0
#include "lib/runtime/metrics.h"

#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "lib/io/json.h"
#include "lib/runtime/engine.h"
#include "lib/text/python_json.h"

namespace dsv4 {
namespace {

template <class T>
JsonMember Number(const char* key, T value) {
  return {key, JsonValue::FromNumberText(absl::StrCat(value))};
}
JsonMember Text(const char* key, absl::string_view value) {
  return {key, JsonValue::FromString(std::string(value))};
}
JsonMember Pool(const char* key, const PoolUse& use) {
  return {key, JsonValue::FromObject({Number("total", use.size), Number("used", use.held()),
                                      Number("cached", use.cached), Number("free", use.free)})};
}

}  // namespace

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
  metrics.device_read_bytes = metrics.experts.device_reads * engine.info().residency.expert_bytes;
  metrics.host_read_bytes = metrics.experts.host_reads * engine.info().residency.expert_bytes;
  metrics.cpu_read_bytes = metrics.experts.cpu_reads * engine.info().residency.cpu_expert_bytes();
  return metrics;
}

std::string MetricsJson(const Engine& engine) {
  const EngineMetrics metrics = MetricsOf(engine);
  const StepCounts& steps = metrics.steps;
  const EngineInfo& info = engine.info();
  const auto object = [](std::vector<JsonMember> members) {
    return JsonValue::FromObject(std::move(members));
  };
  std::vector<JsonMember> alarms;
  for (int32_t kind = 0; kind < kAlarmKinds; ++kind) {
    alarms.push_back(Number(AlarmName(static_cast<Alarm>(1 << kind)),
                            metrics.alarms[static_cast<size_t>(kind)]));
  }
  const JsonValue all = object({
      {"engine", object({Text("backend", BackendName(info.backend)),
                         Text("device", engine.device_name()),
                         Number("devices", info.devices.size()),
                         Text("cache_format", RowFormatName(info.cache_format)),
                         Text("canary", CanaryStateName(info.canary)),
                         {"device_lost", JsonValue::FromBool(steps.device_lost)},
                         {"suspended", JsonValue::FromBool(metrics.suspended)},
                         Number("weight_bytes", info.weight_bytes),
                         Number("cache_bytes", info.cache_bytes),
                         Number("workspace_bytes", info.workspace_bytes)})},
      {"sessions",
       object({Number("open", metrics.cache.sequences), Number("max", info.max_sessions),
               Number("waiting_requests", steps.waiting_requests),
               Number("cancelled_requests", steps.cancelled_requests),
               Number("failed_requests", steps.failed_requests)})},
      {"steps", object({Number("count", steps.steps), Number("seconds", steps.step_seconds),
                        Number("tokens", steps.step_tokens)})},
      {"tokens",
       object({Number("prompt", metrics.prompt_tokens), Number("reused", metrics.reused_tokens),
               Number("prefix_cache", metrics.prefix_cache_tokens),
               Number("prefilled", metrics.prefilled_tokens),
               Number("generated", metrics.generated_tokens)})},
      {"drafts",
       object({Text("drafter", absl::AsciiStrToLower(DrafterName(info.drafter))),
               Number("steps", steps.draft_steps), Number("drafted", steps.drafted_tokens),
               Number("accepted", steps.accepted_tokens)})},
      {"cache", object({Pool("window_blocks", metrics.cache.windows),
                        Pool("compressed_kv_blocks", metrics.cache.compressed),
                        Pool("state_slots", metrics.cache.states)})},
      {"exchange", object({Number("token_bytes", info.exchange.bytes),
                           Number("bytes", metrics.exchanged_bytes)})},
      {"experts", object({Number("on_device", info.residency.on_device),
                          Number("on_host", info.residency.on_host),
                          Number("device_reads", metrics.experts.device_reads),
                          Number("device_read_bytes", metrics.device_read_bytes),
                          Number("device_read_seconds", metrics.experts.device_seconds),
                          Number("host_reads", metrics.experts.host_reads),
                          Number("host_read_bytes", metrics.host_read_bytes),
                          Number("host_read_seconds", metrics.experts.host_seconds),
                          Number("streamed_bytes", metrics.experts.streamed_bytes),
                          Number("stream_seconds", metrics.experts.stream_seconds),
                          Number("moved", metrics.experts.moved),
                          Number("on_disk", info.residency.on_disk),
                          Number("disk_reads", metrics.experts.disk_reads),
                          Number("prefetched", metrics.experts.prefetched),
                          Number("disk_read_bytes", metrics.experts.disk_bytes),
                          Number("disk_seconds", metrics.experts.disk_seconds),
                          Number("on_cpu", info.residency.on_cpu()),
                          Number("cpu_reads", metrics.experts.cpu_reads),
                          Number("cpu_read_bytes", metrics.cpu_read_bytes),
                          Number("cpu_seconds", metrics.experts.cpu_seconds)})},
      {"alarms", object(std::move(alarms))},
  });
  std::string json;
  AppendPythonJson(all, &json);
  return json;
}

}  // namespace dsv4
