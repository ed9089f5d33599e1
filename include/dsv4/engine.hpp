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

// One process of a group, with the fields of dsv4_group_options.
struct GroupOptions {
  int32_t size = 0;  // 0: no group
  int32_t rank = 0;
  std::string id = {};
};

// The fields of dsv4_engine_options. 0 and empty are the defaults.
struct EngineOptions {
  dsv4_backend backend = DSV4_BACKEND_AUTO;
  std::vector<int32_t> devices = {};
  uint32_t device_count = 0;  // without `devices`: so many, the best ones
  int32_t max_sessions = 0;
  int64_t context_tokens = 0;
  int64_t cache_tokens = 0;
  int64_t device_weight_bytes = 0;
  int64_t host_weight_bytes = 0;
  int32_t prefill_chunk_tokens = 0;
  int32_t threads = 0;
  dsv4_drafter drafter = DSV4_DRAFTER_AUTO;
  int32_t max_draft_tokens = 0;  // -1: no drafts
  Progress progress = nullptr;
  GroupOptions group = {};
  std::vector<std::string> settings = {};  // rare options, as "KEY=VALUE"
};

// The settings in effect and the planned memory.
using EngineInfo = dsv4_engine_info;
using EngineMetrics = dsv4_engine_metrics;
// The planned memory of one device.
using DeviceInfo = dsv4_device_info;

// What a measurement should record about an engine, with the fields of dsv4_engine_identity.
struct EngineIdentity {
  std::string device, weight_format, fingerprint;
  std::string chat_encoder, chat_encoder_guess;
};

// A device that an engine can use, with the fields of dsv4_device.
struct Device {
  dsv4_backend backend = DSV4_BACKEND_CPU;
  int32_t index = 0;  // for EngineOptions::devices; -1: `reason` says why no GPU is listed
  bool usable = false;
  int32_t compute_capability = 0;  // of a GPU: 120 for 12.0
  bool integrated = false;         // the sizes are the system's
  uint64_t total_bytes = 0, free_bytes = 0;
  std::string name, reason;  // `reason`: why it is not usable
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

// Options as a C struct, and the call's progress. The options must outlive the object.
class EngineOptionsView {
 public:
  explicit EngineOptionsView(const EngineOptions& in) : progress(in.progress) {
    for (const std::string& setting : in.settings) settings_.push_back(setting.c_str());
    group_.size = in.group.size;
    group_.rank = in.group.rank;
    group_.id = in.group.id.c_str();
    view_.backend = in.backend;
    view_.device_count =
        in.devices.empty() ? in.device_count : static_cast<uint32_t>(in.devices.size());
    view_.devices = in.devices.empty() ? nullptr : in.devices.data();
    view_.max_sessions = in.max_sessions;
    view_.context_tokens = in.context_tokens;
    view_.cache_tokens = in.cache_tokens;
    view_.device_weight_bytes = in.device_weight_bytes;
    view_.host_weight_bytes = in.host_weight_bytes;
    view_.prefill_chunk_tokens = in.prefill_chunk_tokens;
    view_.threads = in.threads;
    view_.drafter = in.drafter;
    view_.max_draft_tokens = in.max_draft_tokens;
    view_.progress = progress.function();
    view_.progress_user = progress.user();
    view_.group = in.group.size == 0 && in.group.id.empty() ? nullptr : &group_;
    view_.settings = settings_.data();
    view_.setting_count = settings_.size();
  }
  EngineOptionsView(const EngineOptionsView&) = delete;
  EngineOptionsView& operator=(const EngineOptionsView&) = delete;

  const dsv4_engine_options* get() const noexcept { return &view_; }

  ProgressCall progress;

 private:
  std::vector<const char*> settings_;
  dsv4_group_options group_ = DSV4_GROUP_OPTIONS_INIT;
  dsv4_engine_options view_ = DSV4_ENGINE_OPTIONS_INIT;
};

}  // namespace detail

// Lists the machine's GPUs, or an entry that says why there is none, then the CPU.
inline std::vector<Device> ListDevices() {
  detail::CheckAbi();
  std::vector<dsv4_device> found(16);
  std::size_t needed = 0;
  for (;;) {
    for (dsv4_device& device : found) device = DSV4_DEVICE_INIT;
    detail::Call(dsv4_list_devices, found.data(), found.size(), &needed);
    const bool complete = needed <= found.size();
    found.resize(needed);
    if (complete) break;
  }
  std::vector<Device> devices;
  for (const dsv4_device& device : found) {
    devices.push_back({device.backend, device.index, device.usable != 0, device.compute_capability,
                       device.integrated != 0, device.total_bytes, device.free_bytes, device.name,
                       device.reason});
  }
  return devices;
}

// Plans an engine with these options: returns the memory that it would need, and throws the errors
// that opening it would throw. Reads only the headers of the model's files.
inline EngineInfo Plan(const std::string& path, const EngineOptions& options = {}) {
  detail::CheckAbi();
  const detail::EngineOptionsView view(options);
  EngineInfo info = DSV4_ENGINE_INFO_INIT;
  detail::Call(dsv4_plan, path.c_str(), view.get(), &info, nullptr, std::size_t{0});
  return info;
}

// The planned memory of each device of that engine.
inline std::vector<DeviceInfo> PlanDevices(const std::string& path,
                                           const EngineOptions& options = {}) {
  const detail::EngineOptionsView view(options);
  EngineInfo info = Plan(path, options);
  std::vector<DeviceInfo> devices(static_cast<std::size_t>(info.device_count));
  for (DeviceInfo& device : devices) device = DSV4_DEVICE_INFO_INIT;
  detail::Call(dsv4_plan, path.c_str(), view.get(), &info, devices.data(), devices.size());
  return devices;
}

// Creates the id of a new group of options.group.size processes that split a model. The host sends
// the id to every process. It contains the options that the processes have in common.
inline std::string CreateGroupId(const EngineOptions& options) {
  detail::CheckAbi();
  const detail::EngineOptionsView view(options);
  std::string id(1024, '\0');
  std::size_t needed = 0;
  detail::Call(dsv4_group_create_id, view.get(), id.data(), id.size(), &needed);
  id.resize(needed);
  return id;
}

// Loads this process's part of the model and computes its part of the steps that rank 0 starts.
// Returns when rank 0 closes its engine.
inline void ServeGroup(const std::string& path, const EngineOptions& options) {
  detail::CheckAbi();
  detail::EngineOptionsView view(options);
  detail::CallBack(view.progress.thrown, dsv4_group_serve, path.c_str(), view.get());
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
    detail::EngineOptionsView view(options);
    dsv4_engine* engine = nullptr;
    detail::CallBack(view.progress.thrown, dsv4_engine_open, path.c_str(), view.get(), &engine);
    handle_.reset(engine);
  }

  // The settings in effect and the planned memory.
  EngineInfo info() const {
    EngineInfo info = DSV4_ENGINE_INFO_INIT;
    detail::Call(dsv4_engine_get_info, handle_.get(), &info);
    return info;
  }

  // Identifies the device and the checkpoint.
  EngineIdentity identity() const {
    dsv4_engine_identity view = DSV4_ENGINE_IDENTITY_INIT;
    detail::Call(dsv4_engine_get_identity, handle_.get(), &view);
    return {view.device, view.weight_format, view.fingerprint, view.chat_encoder,
            view.chat_encoder_guess};
  }

  // Counters and gauges. May run concurrently with everything.
  EngineMetrics metrics() const {
    EngineMetrics metrics = DSV4_ENGINE_METRICS_INIT;
    detail::Call(dsv4_engine_get_metrics, handle_.get(), &metrics);
    return metrics;
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

  // The values that 0 stands for in a Sampling of this model. They are valid themselves: greedy
  // sampling is DSV4_GREEDY, not 0.
  Sampling default_sampling() const {
    dsv4_sampling view = DSV4_SAMPLING_INIT;
    detail::Call(dsv4_sampling_init, handle_.get(), &view);
    Sampling sampling;
    sampling.temperature = view.temperature;
    sampling.top_k = view.top_k;
    sampling.top_p = view.top_p;
    sampling.min_p = view.min_p;
    sampling.repetition_penalty = view.repetition_penalty;
    sampling.seed = view.seed;
    sampling.max_tokens = view.max_tokens;
    return sampling;
  }

  // Compiles a grammar for sessions of this engine.
  Grammar OpenGrammar(dsv4_grammar_kind kind, std::string_view source) const {
    dsv4_grammar* grammar = nullptr;
    detail::Call(dsv4_grammar_open, handle_.get(), kind, source.data(), source.size(), &grammar);
    return Grammar(grammar);
  }
  // Turns that call tools, given as a JSON array in OpenAI's form.
  Grammar ToolGrammar(std::string_view tools, const ToolOptions& options = {}) const {
    const dsv4_tool_options view = detail::ToolOptionsView(options);
    dsv4_grammar* grammar = nullptr;
    detail::Call(dsv4_grammar_open_answer, handle_.get(), tools.data(), tools.size(), nullptr,
                 std::size_t{0}, &view, &grammar);
    return Grammar(grammar);
  }
  // Turns that are JSON of a schema or call tools. Without tools (empty): JSON of the schema.
  Grammar AnswerGrammar(std::string_view tools, std::string_view schema,
                        const ToolOptions& options = {}) const {
    const dsv4_tool_options view = detail::ToolOptionsView(options);
    dsv4_grammar* grammar = nullptr;
    detail::Call(dsv4_grammar_open_answer, handle_.get(), tools.empty() ? nullptr : tools.data(),
                 tools.size(), schema.data(), schema.size(), &view, &grammar);
    return Grammar(grammar);
  }

  // The C handle.
  dsv4_engine* get() const noexcept { return handle_.get(); }

 private:
  detail::Handle<dsv4_engine, dsv4_engine_close> handle_;
};

}  // namespace cpp
}  // namespace dsv4

#endif  // DSV4_ENGINE_HPP_
