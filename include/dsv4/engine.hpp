// SPDX-License-Identifier: Apache-2.0
//
// An engine: one model in memory.
#ifndef DSV4_ENGINE_HPP_
#define DSV4_ENGINE_HPP_

#include <dsv4/engine.h>
#include <dsv4/sampling.hpp>
#include <dsv4/tokenizer.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace dsv4 {
inline namespace cpp {

// The progress of a long call.
struct ProgressReport {
  dsv4_progress_phase phase;
  uint64_t done, total;
  dsv4_progress_unit unit;
};

// Receives the progress of a long call, on the thread of that call. Returning false cancels the
// call, which throws an Error with DSV4_ERR_CANCELLED. The call rethrows what the callback throws.
using Progress = std::function<bool(const ProgressReport& report)>;

// The fields of dsv4_engine_options. 0 and empty are the defaults.
struct EngineOptions {
  dsv4_backend backend = DSV4_BACKEND_AUTO;
  dsv4_numerics numerics = DSV4_NUMERICS_PUBLISHED;
  std::vector<int32_t> devices = {};
  int64_t context_tokens = 0;
  int64_t cache_tokens = 0;
  int32_t max_sessions = 0;
  int32_t prefill_chunk_tokens = 0;
  int32_t threads = 0;
  Progress progress = nullptr;
  dsv4_cache_format cache_format = DSV4_CACHE_AUTO;
  int32_t max_draft_tokens = 0;
  std::string tuning_dir = {};
  dsv4_drafter drafter = DSV4_DRAFTER_AUTO;
  int64_t device_weight_bytes = 0;
  int64_t host_weight_bytes = 0;
  std::string group_id = {};
  int32_t group_size = 0;
  int32_t group_rank = 0;
  std::string expert_profile = {};
  bool skip_canary = false;
  int32_t cpu_experts = 0;
};

// The settings in effect and the planned memory.
using EngineInfo = dsv4_engine_info;
using EngineMetrics = dsv4_engine_metrics;
// The planned memory of one device.
using DeviceInfo = dsv4_device_info;

// What a measurement should record about an engine, with the fields of dsv4_engine_identity.
struct EngineIdentity {
  std::string device, weight_format, fingerprint, backend_reason;
};

namespace detail {

// Adapts a Progress to the C callback for the duration of a call.
class ProgressCall {
 public:
  explicit ProgressCall(const Progress& progress) : progress_(progress) {}

  dsv4_progress_fn function() const noexcept { return progress_ ? &Run : nullptr; }
  void* user() noexcept { return this; }

  std::exception_ptr thrown;

 private:
  static int32_t Run(void* user, dsv4_progress_phase phase, uint64_t done, uint64_t total,
                     dsv4_progress_unit unit) noexcept {
    auto* self = static_cast<ProgressCall*>(user);
    try {
      return self->progress_({phase, done, total, unit}) ? 0 : 1;
    } catch (...) {
      self->thrown = std::current_exception();
      return 1;
    }
  }

  const Progress& progress_;
};

// Options as a C struct. The options and `progress` must outlive the object.
inline dsv4_engine_options ViewOf(const EngineOptions& in, ProgressCall* progress) {
  dsv4_engine_options out = DSV4_ENGINE_OPTIONS_INIT;
  out.backend = in.backend;
  out.numerics = in.numerics;
  out.device_count = static_cast<uint32_t>(in.devices.size());
  out.devices = in.devices.empty() ? nullptr : in.devices.data();
  out.context_tokens = in.context_tokens;
  out.cache_tokens = in.cache_tokens;
  out.max_sessions = in.max_sessions;
  out.prefill_chunk_tokens = in.prefill_chunk_tokens;
  out.threads = in.threads;
  out.progress = progress->function();
  out.progress_user = progress->user();
  out.cache_format = in.cache_format;
  out.max_draft_tokens = in.max_draft_tokens;
  out.tuning_dir = in.tuning_dir.c_str();
  out.drafter = in.drafter;
  out.device_weight_bytes = in.device_weight_bytes;
  out.host_weight_bytes = in.host_weight_bytes;
  out.group_id = in.group_id.c_str();
  out.group_size = in.group_size;
  out.group_rank = in.group_rank;
  out.expert_profile = in.expert_profile.c_str();
  out.skip_canary = in.skip_canary ? 1 : 0;
  out.cpu_experts = in.cpu_experts;
  return out;
}

}  // namespace detail

// Plans an engine with these options: returns the memory that it would need, and throws the errors
// that opening it would throw. Reads only the headers of the model's files.
inline EngineInfo Plan(const std::string& path, const EngineOptions& options = {}) {
  detail::CheckAbi();
  detail::ProgressCall progress(options.progress);
  const dsv4_engine_options view = detail::ViewOf(options, &progress);
  EngineInfo info = DSV4_ENGINE_INFO_INIT;
  detail::Call(dsv4_plan, path.c_str(), &view, &info);
  return info;
}

// The same for one device of the engine.
inline DeviceInfo PlanDevice(const std::string& path, int32_t device,
                             const EngineOptions& options = {}) {
  detail::CheckAbi();
  detail::ProgressCall progress(options.progress);
  const dsv4_engine_options view = detail::ViewOf(options, &progress);
  DeviceInfo info = DSV4_DEVICE_INFO_INIT;
  detail::Call(dsv4_plan_device, path.c_str(), &view, device, &info);
  return info;
}

// Creates the id of a new group of options.group_size processes that split a model. The host sends
// the id to every process. It contains the options that the processes have in common.
inline std::string CreateGroupId(const EngineOptions& options) {
  detail::CheckAbi();
  detail::ProgressCall progress(options.progress);
  const dsv4_engine_options view = detail::ViewOf(options, &progress);
  std::string id(1024, '\0');
  std::size_t needed = 0;
  detail::Call(dsv4_group_create_id, &view, id.data(), id.size(), &needed);
  id.resize(needed);
  return id;
}

// Loads this process's part of the model and computes its part of the steps that rank 0 starts.
// Returns when rank 0 closes its engine.
inline void ServeGroup(const std::string& path, const EngineOptions& options) {
  detail::CheckAbi();
  detail::ProgressCall progress(options.progress);
  const dsv4_engine_options view = detail::ViewOf(options, &progress);
  detail::CallBack(progress.thrown, dsv4_group_serve, path.c_str(), &view);
}

// Describes the model folder `path` as a JSON object.
inline std::string Inspect(const std::string& path) {
  detail::CheckAbi();
  return detail::ReadAll<std::string>(
      4096, [&](char* json, std::size_t capacity, std::size_t* needed) {
        detail::Call(dsv4_inspect, path.c_str(), json, capacity, needed);
      });
}

// The weights of one model on its devices, shared by sessions on any threads. Sessions keep the
// underlying engine alive, so the object may be destroyed before them.
class Engine {
 public:
  // Opens the model folder `path`.
  explicit Engine(const std::string& path, const EngineOptions& options = {}) {
    detail::CheckAbi();
    detail::ProgressCall progress(options.progress);
    const dsv4_engine_options view = detail::ViewOf(options, &progress);
    dsv4_engine* engine = nullptr;
    detail::CallBack(progress.thrown, dsv4_engine_open, path.c_str(), &view, &engine);
    handle_.reset(engine);
  }

  // The settings in effect and the planned memory.
  EngineInfo info() const {
    EngineInfo info = DSV4_ENGINE_INFO_INIT;
    detail::Call(dsv4_engine_get_info, handle_.get(), &info);
    return info;
  }

  // The planned memory of one device, from 0 to info().device_count - 1.
  DeviceInfo device(int32_t device) const {
    DeviceInfo info = DSV4_DEVICE_INFO_INIT;
    detail::Call(dsv4_engine_get_device, handle_.get(), device, &info);
    return info;
  }

  // Identifies the device and the checkpoint.
  EngineIdentity identity() const {
    dsv4_engine_identity view = DSV4_ENGINE_IDENTITY_INIT;
    detail::Call(dsv4_engine_get_identity, handle_.get(), &view);
    return {view.device, view.weight_format, view.fingerprint, view.backend_reason};
  }

  // Counters and gauges. May run concurrently with everything.
  EngineMetrics metrics() const {
    EngineMetrics metrics = DSV4_ENGINE_METRICS_INIT;
    detail::Call(dsv4_engine_get_metrics, handle_.get(), &metrics);
    return metrics;
  }
  // The same as a JSON object.
  std::string MetricsJson() const {
    return detail::ReadAll<std::string>(
        2048, [&](char* json, std::size_t capacity, std::size_t* needed) {
          detail::Call(dsv4_engine_get_metrics_json, handle_.get(), json, capacity, needed);
        });
  }

  // Gives memory back and keeps the sessions, as dsv4_engine_suspend does: in host memory, or in a
  // file of `folder` if that is not empty.
  void Suspend(const std::string& folder = {}) const {
    detail::Call(dsv4_engine_suspend, handle_.get(), folder.empty() ? nullptr : folder.c_str());
  }

  // Loads the weights again, as dsv4_engine_resume does.
  void Resume(const Progress& progress = nullptr) const {
    detail::ProgressCall call(progress);
    detail::CallBack(call.thrown, dsv4_engine_resume, handle_.get(), call.function(), call.user());
  }

  // The tokenizer, a view that lives as long as the engine. Throws NOT_FOUND if the model has none.
  TokenizerView tokenizer() const {
    const dsv4_tokenizer* tokenizer = nullptr;
    detail::Call(dsv4_engine_get_tokenizer, handle_.get(), &tokenizer);
    return TokenizerView(tokenizer);
  }

  // The model's default sampling parameters.
  Sampling default_sampling() const {
    dsv4_sampling sampling = DSV4_SAMPLING_INIT;
    detail::Call(dsv4_sampling_init, handle_.get(), &sampling);
    return detail::SamplingOf(sampling);
  }

  // Compiles a grammar for sessions of this engine: JSON texts that are valid under a schema.
  Grammar SchemaGrammar(std::string_view schema) const {
    return OpenGrammar(dsv4_grammar_open_schema, schema);
  }
  // Texts that a regular expression matches from beginning to end.
  Grammar RegexGrammar(std::string_view pattern) const {
    return OpenGrammar(dsv4_grammar_open_regex, pattern);
  }
  // Texts of the rule `root` of a grammar in EBNF.
  Grammar EbnfGrammar(std::string_view rules) const {
    return OpenGrammar(dsv4_grammar_open_ebnf, rules);
  }
  // Turns that call tools, given as a JSON array in OpenAI's form.
  Grammar ToolGrammar(std::string_view tools, const ToolOptions& options = {}) const {
    dsv4_tool_options view = DSV4_TOOL_OPTIONS_INIT;
    view.choice = options.choice;
    view.name = options.name.empty() ? nullptr : options.name.c_str();
    view.lenient = options.lenient ? 1 : 0;
    dsv4_grammar* grammar = nullptr;
    detail::Call(dsv4_grammar_open_tools, handle_.get(), tools.data(), tools.size(), &view,
                 &grammar);
    return Grammar(grammar);
  }

  // The C handle.
  dsv4_engine* get() const noexcept { return handle_.get(); }

 private:
  template <class Open>
  Grammar OpenGrammar(Open open, std::string_view source) const {
    dsv4_grammar* grammar = nullptr;
    detail::Call(open, handle_.get(), source.data(), source.size(), &grammar);
    return Grammar(grammar);
  }

  detail::Handle<dsv4_engine, dsv4_engine_close> handle_;
};

}  // namespace cpp
}  // namespace dsv4

#endif  // DSV4_ENGINE_HPP_
