// SPDX-License-Identifier: Apache-2.0
// include/dsv4/engine.h.
#include <dsv4/engine.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_join.h"
#include "capi/engine_options.h"
#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/progress.h"
#include "capi/static_text.h"
#include "capi/struct_io.h"
#include "lib/base/status_macros.h"
#include "lib/engine/group_options.h"
#include "lib/engine/inspection.h"
#include "lib/engine/metrics.h"
#include "lib/proof/open_best.h"

namespace dsv4::capi {
namespace {

dsv4_engine_info InfoFrom(const EngineInfo& info, const ModelConfig& config,
                          const KvCacheBytes& cache) {
  dsv4_engine_info out = DSV4_ENGINE_INFO_INIT;
  out.backend = EnumTo(kBackends, info.backend);
  out.numerics = NameOf(info.numerics);
  out.threads = info.threads;
  out.context_tokens = info.context_tokens;
  out.cache_tokens = info.cache_tokens;
  out.max_sessions = info.max_sessions;
  out.prefill_chunk_tokens = info.prefill_chunk_tokens;
  out.vocab_size = static_cast<int32_t>(config.vocab_size);
  out.has_tokenizer = info.has_tokenizer;
  out.bos_token = static_cast<int32_t>(config.bos_token_id);
  out.eos_token = static_cast<int32_t>(config.eos_token_ids.front());
  out.layers = static_cast<int32_t>(config.num_hidden_layers);
  out.weight_bytes = static_cast<uint64_t>(info.weight_bytes);
  out.cache_bytes = static_cast<uint64_t>(info.cache_bytes);
  out.workspace_bytes = static_cast<uint64_t>(info.workspace_bytes);
  out.cache_format = NameOf(info.cache_format);
  out.max_draft_tokens = info.max_draft_tokens;
  const auto devices = static_cast<uint64_t>(info.devices.size());
  out.cache_window_bytes = devices * static_cast<uint64_t>(cache.window);
  out.cache_compressed_bytes = devices * static_cast<uint64_t>(cache.compressed);
  out.cache_index_bytes = devices * static_cast<uint64_t>(cache.index_keys);
  out.cache_state_bytes = devices * static_cast<uint64_t>(cache.states);
  out.device_count = static_cast<int32_t>(devices);
  out.step_exchanges = static_cast<int32_t>(info.exchange.exchanges);
  out.token_exchange_bytes = static_cast<uint64_t>(info.exchange.bytes);
  const DeviceBytes& fullest = info.fullest();
  out.device_weight_bytes = static_cast<uint64_t>(fullest.weights);
  out.device_cache_bytes = static_cast<uint64_t>(fullest.cache);
  out.device_workspace_bytes = static_cast<uint64_t>(fullest.workspace);
  out.checkpoint_drafter = EnumTo(kDrafters, info.checkpoint_drafter);
  out.drafter = EnumTo(kDrafters, info.drafter);
  out.device_experts = info.residency.on_device;
  out.host_experts = info.residency.on_host;
  out.host_weight_bytes = static_cast<uint64_t>(info.residency.host_bytes());
  out.token_expert_bytes = static_cast<uint64_t>(info.token_expert_bytes);
  out.disk_experts = info.residency.on_disk;
  out.canary = static_cast<dsv4_canary>(info.canary);
  out.predicted_decode_tokens_per_second = info.expected_decode;
  out.predicted_prefill_tokens_per_second = info.expected_prefill;
  out.backend_reason = StaticText(info.backend_reason);
  out.second_set_operators = StaticText(absl::StrJoin(info.second_set_operators, ", "));
  return out;
}

dsv4_engine_metrics MetricsFrom(const EngineMetrics& metrics) {
  const auto count = [](int64_t number) { return static_cast<uint64_t>(number); };
  const StepCounts& steps = metrics.steps;
  dsv4_engine_metrics out = DSV4_ENGINE_METRICS_INIT;
  out.device_lost = steps.device_lost;
  out.sessions = metrics.cache.sequences;
  out.waiting_requests = steps.waiting_requests;
  out.steps = count(steps.steps);
  out.step_seconds = steps.step_seconds;
  out.step_tokens = count(steps.step_tokens);
  out.cancelled_requests = count(steps.cancelled_requests);
  out.failed_requests = count(steps.failed_requests);
  out.prompt_tokens = count(metrics.prompt_tokens);
  out.reused_tokens = count(metrics.reused_tokens);
  out.prefix_cache_tokens = count(metrics.prefix_cache_tokens);
  out.prefilled_tokens = count(metrics.prefilled_tokens);
  out.generated_tokens = count(metrics.generated_tokens);
  out.draft_steps = count(steps.draft_steps);
  out.drafted_tokens = count(steps.drafted_tokens);
  out.accepted_tokens = count(steps.accepted_tokens);
  out.exchanged_bytes = count(metrics.exchanged_bytes);
  out.window_blocks = metrics.cache.windows.size;
  out.window_blocks_used = metrics.cache.windows.held();
  out.window_blocks_cached = metrics.cache.windows.cached;
  out.compressed_kv_blocks = metrics.cache.compressed.size;
  out.compressed_kv_blocks_used = metrics.cache.compressed.held();
  out.compressed_kv_blocks_cached = metrics.cache.compressed.cached;
  out.state_slots = metrics.cache.states.size;
  out.state_slots_used = metrics.cache.states.held();
  out.state_slots_cached = metrics.cache.states.cached;
  out.suspended = metrics.suspended;
  out.alarm_nonfinite_logits = count(metrics.alarms[0]);
  out.alarm_frozen_logits = count(metrics.alarms[1]);
  out.alarm_token_run = count(metrics.alarms[2]);
  out.alarm_bos_run = count(metrics.alarms[3]);
  out.alarm_few_accepted = count(metrics.alarms[4]);
  out.alarm_canary = count(metrics.alarms[5]);
  out.second_set_operators = count(metrics.second_set_operators);
  out.device_expert_reads = count(metrics.experts.device_reads);
  out.host_expert_reads = count(metrics.experts.host_reads);
  out.host_read_bytes = count(metrics.experts.host_bytes);
  out.moved_experts = count(metrics.experts.moved);
  out.disk_expert_reads = count(metrics.experts.disk_reads);
  out.disk_read_bytes = count(metrics.experts.disk_bytes);
  out.disk_read_seconds = metrics.experts.disk_seconds;
  out.device_read_bytes = count(metrics.experts.device_bytes);
  out.streamed_bytes = count(metrics.experts.streamed_bytes);
  out.stream_seconds = metrics.experts.stream_seconds;
  out.device_read_seconds = metrics.experts.device_seconds;
  out.host_read_seconds = metrics.experts.host_seconds;
  out.predicted_decode_tokens_per_second = metrics.predicted_decode;
  out.measured_decode_tokens_per_second = metrics.measured_decode;
  return out;
}

dsv4_device_info DeviceFrom(const DeviceBytes& bytes) {
  dsv4_device_info out = DSV4_DEVICE_INFO_INIT;
  out.index = bytes.index;
  out.weight_bytes = static_cast<uint64_t>(bytes.weights);
  out.cache_bytes = static_cast<uint64_t>(bytes.cache);
  out.workspace_bytes = static_cast<uint64_t>(bytes.workspace);
  return out;
}

}  // namespace
}  // namespace dsv4::capi

dsv4_status dsv4_engine_open(const char* path, const dsv4_engine_options* options,
                             dsv4_engine** engine, dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(NotNull(path, "path"));
    DSV4_RETURN_IF_ERROR(NotNull(engine, "engine"));
    DSV4_ASSIGN_OR_RETURN(const dsv4::OpenOptions open_options, OptionsFrom(options));
    auto handle = std::make_unique<dsv4_engine>();
    absl::StatusOr<std::shared_ptr<dsv4::Engine>> opened = dsv4::OpenBest(path, open_options);
    if (!opened.ok()) return dsv4::WithArgumentOf(opened.status(), "options");
    handle->engine = *std::move(opened);
    const absl::StatusOr<const dsv4::Tokenizer*> tokenizer = handle->engine->tokenizer();
    if (tokenizer.ok()) handle->tokenizer.tokenizer = *tokenizer;
    handle->tokenizer.encoder = handle->engine->text().ChatEncoderOr(dsv4::ChatEncoder::kPreview);
    *engine = handle.release();
    return absl::OkStatus();
  });
}

void dsv4_engine_close(dsv4_engine* engine) noexcept { delete engine; }

dsv4_status dsv4_engine_get_info(const dsv4_engine* engine, dsv4_engine_info* info,
                                 dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(NotNull(engine, "engine"));
    DSV4_RETURN_IF_ERROR(StructSize(info, "info").status());
    dsv4::Engine& opened = *engine->engine;
    CopyOut(InfoFrom(opened.info(), opened.config(), opened.cache().bytes()), info);
    return absl::OkStatus();
  });
}

dsv4_status dsv4_engine_get_identity(const dsv4_engine* engine, dsv4_engine_identity* identity,
                                     dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(NotNull(engine, "engine"));
    DSV4_RETURN_IF_ERROR(StructSize(identity, "identity").status());
    const dsv4::Engine& opened = *engine->engine;
    dsv4_engine_identity out = DSV4_ENGINE_IDENTITY_INIT;
    out.device = opened.device_name().c_str();
    out.weight_format = opened.weight_format().c_str();
    out.fingerprint = opened.fingerprint().c_str();
    const auto& encoder = opened.text().chat_encoder();
    out.chat_encoder = encoder ? dsv4::ChatEncoderName(encoder->encoder).data() : "";
    out.chat_encoder_guess = encoder ? encoder->guess.c_str() : "";
    CopyOut(out, identity);
    return absl::OkStatus();
  });
}

dsv4_status dsv4_engine_get_metrics(const dsv4_engine* engine, dsv4_engine_metrics* metrics,
                                    dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(NotNull(engine, "engine"));
    DSV4_RETURN_IF_ERROR(StructSize(metrics, "metrics").status());
    CopyOut(MetricsFrom(dsv4::MetricsOf(*engine->engine)), metrics);
    return absl::OkStatus();
  });
}

dsv4_status dsv4_engine_suspend(dsv4_engine* engine, const char* folder,
                                dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(NotNull(engine, "engine"));
    return engine->engine->Suspend(folder == nullptr ? "" : folder);
  });
}

dsv4_status dsv4_engine_resume(dsv4_engine* engine, dsv4_progress_fn progress, void* progress_user,
                               dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(NotNull(engine, "engine"));
    return engine->engine->Resume(Reporter(progress, progress_user, DSV4_PROGRESS_LOAD));
  });
}

dsv4_status dsv4_plan(const char* path, const dsv4_engine_options* options, dsv4_engine_info* info,
                      dsv4_device_info* devices, size_t capacity, dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(NotNull(path, "path"));
    DSV4_RETURN_IF_ERROR(StructSize(info, "info").status());
    DSV4_RETURN_IF_ERROR(CheckArray(devices, capacity, "devices"));
    DSV4_ASSIGN_OR_RETURN(const dsv4::OpenOptions in, OptionsFrom(options));
    const absl::StatusOr<dsv4::EnginePlan> plan = dsv4::PlanBest(path, in);
    if (!plan.ok()) return dsv4::WithArgumentOf(plan.status(), "options");
    DSV4_RETURN_IF_ERROR(
        CopyStructsOut(plan->info().devices, &DeviceFrom, devices, capacity, "devices"));
    CopyOut(InfoFrom(plan->info(), plan->config(), plan->cache().bytes), info);
    return absl::OkStatus();
  });
}

dsv4_status dsv4_group_create_id(const dsv4_engine_options* options, char* id, size_t capacity,
                                 size_t* needed, dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(NotNull(options, "options"));
    DSV4_RETURN_IF_ERROR(CheckArrayOut(id, capacity, needed, "id"));
    constexpr size_t kCapacity = 1024;
    if (capacity < kCapacity) {
      return dsv4::InvalidValue("capacity", " is ", capacity, "; expected at least ", kCapacity);
    }
    DSV4_ASSIGN_OR_RETURN(const dsv4::OpenOptions in, OptionsFrom(options));
    const absl::StatusOr<std::string> made = dsv4::CreateGroupId(in);
    if (!made.ok()) return dsv4::WithArgumentOf(made.status(), "options");
    CopyArrayOut(*made, id, capacity, needed);
    return absl::OkStatus();
  });
}

dsv4_status dsv4_group_serve(const char* path, const dsv4_engine_options* options,
                             dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(NotNull(path, "path"));
    DSV4_RETURN_IF_ERROR(NotNull(options, "options"));
    DSV4_ASSIGN_OR_RETURN(const dsv4_engine_options in, CopyIn(options, "options"));
    DSV4_ASSIGN_OR_RETURN(const dsv4::OpenOptions serve_options, OptionsFrom(options));
    const auto report = Reporter(in.progress, in.progress_user, DSV4_PROGRESS_SERVE);
    const absl::Status served = dsv4::ServeBest(
        path, serve_options, [&](int64_t tokens) { return !report || report(tokens, 0); });
    return dsv4::WithArgumentOf(served, "options");
  });
}

dsv4_status dsv4_inspect(const char* path, char* json, size_t capacity, size_t* needed,
                         dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(NotNull(path, "path"));
    DSV4_RETURN_IF_ERROR(CheckArrayOut(json, capacity, needed, "json"));
    DSV4_ASSIGN_OR_RETURN(const std::string description, dsv4::InspectModel(path));
    CopyArrayOut(description, json, capacity, needed);
    return absl::OkStatus();
  });
}

dsv4_status dsv4_engine_get_tokenizer(const dsv4_engine* engine, const dsv4_tokenizer** tokenizer,
                                      dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(NotNull(engine, "engine"));
    DSV4_RETURN_IF_ERROR(NotNull(tokenizer, "tokenizer"));
    DSV4_RETURN_IF_ERROR(engine->engine->tokenizer().status());
    *tokenizer = &engine->tokenizer;
    return absl::OkStatus();
  });
}
