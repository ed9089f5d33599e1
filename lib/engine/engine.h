// SPDX-License-Identifier: Apache-2.0
// An engine: one model's weights on its devices, the KV block pool, the workspaces, and the forward
// pass that its sessions share. It is opened in stages: EngineSettings, EnginePlan, EngineMemory.
// Every byte is planned before it is allocated.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/registry/dispatch.h"
#include "lib/base/mutex.h"
#include "lib/device/device.h"
#include "lib/engine/engine_gate.h"
#include "lib/engine/engine_memory.h"
#include "lib/engine/engine_options.h"
#include "lib/engine/engine_plan.h"
#include "lib/engine/profile_keeper.h"
#include "lib/io/replaced_file.h"
#include "lib/kv/kv_cache.h"
#include "lib/step/counters.h"
#include "lib/step/engine_facts.h"
#include "lib/step/engine_text.h"
#include "lib/step/scheduler.h"
#include "lib/step/session_image.h"

namespace dsv4 {

class Engine : public std::enable_shared_from_this<Engine> {
 public:
  ~Engine();
  // Opens a model folder: Settle, EnginePlan::Make, then the Open below. Errors name the file, key,
  // tensor or option. Among them OutOfDeviceMemory, before a weight is read, if the device's free
  // memory is smaller than the plan.
  static absl::StatusOr<std::shared_ptr<Engine>> Open(const std::string& folder,
                                                      const EngineOptions& options);
  // Opens a rank of a group that another process leads, and computes its part of the steps until
  // the leader closes. Errors: those of Open and FollowLeader.
  static absl::Status Serve(const std::string& folder, const EngineOptions& options,
                            absl::FunctionRef<bool(int64_t rows)> keep_serving);
  // An engine on random weights for `config_json`, without a folder: see SyntheticCheckpoint.
  static absl::StatusOr<std::shared_ptr<Engine>> OpenRandom(absl::string_view config_json,
                                                            const EngineOptions& options);
  // Plans an engine, with the errors of Open except those about values of weights and about room
  // (EnginePlan::CheckRoom). Reads only the files' headers.
  static absl::StatusOr<EnginePlan> Plan(const std::string& folder, const EngineOptions& options);
  // Opens a planned engine. `progress`: as EngineOptions::progress.
  static absl::StatusOr<std::shared_ptr<Engine>> Open(
      EnginePlan plan, const std::function<bool(int64_t, int64_t)>& progress);

  const EnginePlan& plan() const { return plan_; }
  const EngineFacts& facts() const { return plan_.facts(); }
  const EngineInfo& info() const { return plan_.info(); }
  const ModelConfig& config() const { return plan_.config(); }
  const GenerationConfig& generation() const { return facts().generation; }
  const EngineText& text() const { return *plan_.settings().text; }
  // NotFound when the folder has no tokenizer.json.
  absl::StatusOr<const Tokenizer*> tokenizer() const { return text().tokenizer(); }
  const std::vector<int32_t>& eos_tokens() const { return facts().eos_tokens; }
  int32_t token_limit() const { return facts().token_limit; }
  const std::vector<int32_t>& token_gaps() const { return facts().token_gaps; }

  // The identity that a saved session must have to be loaded. The first call reads the ends of all
  // tensors. Any thread.
  const SessionIdentity& identity() const;
  // The caches of engines with another cache format; as identity().
  absl::Span<const OtherCache> other_caches() const;
  // The checkpoint's fingerprint in hexadecimal; as identity().
  const std::string& fingerprint() const;
  const std::string& device_name() const { return device_name_; }
  // For OpenBest, before other threads use the engine.
  void set_canary(CanaryState state) { plan_.mutable_info().canary = state; }
  const std::string& weight_format() const { return plan_.weight_format(); }

  // The traffic of the first rank. The experts of all ranks move alike. Any thread.
  ExpertTraffic expert_traffic() const;

  // Frees the memory of weights, cache and workspace. Keeps the sessions' cache rows in host memory
  // or, if `folder` is not empty, in a file there. Does nothing if the engine is suspended. Errors
  // leave the engine running: see dsv4_engine_suspend.
  absl::Status Suspend(const std::string& folder);
  // Loads the weights and restores the cache; sessions continue with the same bits. An engine that
  // lost a device opens its devices again; its sessions then compute their tokens' rows anew with
  // their next step. Does nothing if the engine is neither suspended nor lost. `progress` as in
  // EngineOptions. Errors leave the engine suspended: see dsv4_engine_resume.
  absl::Status Resume(const std::function<bool(int64_t, int64_t)>& progress);
  // Whether a step failed because a device was lost. Any thread.
  bool lost() const { return scheduler_->counts().device_lost; }
  // EngineInfo::expected_decode of the plan that is allocated. Any thread.
  double predicted_decode() const { return predicted_decode_; }
  // Any thread.
  bool suspended() const { return !gate_.open(); }

  // For sessions. A call that computes or uses cache rows holds a visit.
  EngineGate& gate() const { return gate_; }
  KvCache& cache() const { return *cache_; }
  Scheduler& scheduler() const { return *scheduler_; }
  SessionCounters& counters() const { return counters_; }
  // For verification: the forward pass and a batch for it. Not while a session computes.
  ModelRanks& model() { return memory_->model(); }
  // The weights of a rank.
  WeightViews& views(int rank) { return memory_->weights().views(rank); }
  StepBatch& batch() { return memory_->batch(); }
  Device& device() { return plan_.devices().front(); }
  const HostRows& host_rows() const { return plan_.devices().front_dispatch().rows(); }
  // Benchmarks: observe every launch of the first rank. Not while a step runs.
  void set_recorder(LaunchRecorder* recorder) {
    plan_.devices().front_dispatch().set_recorder(recorder);
    model().set_watched(recorder != nullptr);
  }

 private:
  explicit Engine(EnginePlan plan)
      : plan_(std::move(plan)), device_name_(plan_.devices().front().name()) {}
  // A rank of a group, or the only one.
  static absl::StatusOr<std::shared_ptr<Engine>> OpenRank(
      EnginePlan plan, const std::function<bool(int64_t, int64_t)>& progress);
  // Allocates the memory, and starts what needs it.
  absl::Status Allocate(const std::function<bool(int64_t, int64_t)>& progress);
  // Joins the group's other processes.
  absl::StatusOr<std::unique_ptr<ProcessGroup>> JoinGroup();
  void LogOpened() const;
  // The sessions' cache rows while the engine is suspended.
  struct KeptRows {
    HeldBlocks held;
    std::unique_ptr<std::byte[]> memory;
    std::optional<ReplacedFile> file;  // in place of memory
    absl::Span<std::byte> bytes();
  };
  absl::StatusOr<KeptRows> KeepRows(const std::string& folder);
  // Closes the gate of an engine that lost a device, and frees its memory.
  absl::Status GiveUpRows();
  absl::Status AllocateAgain(const std::function<bool(int64_t, int64_t)>& progress);
  void FreeMemory();
  // Has steps end that a GPU does not answer.
  absl::Status LimitSteps();
  // Keeps the engine and its memory for as long as the process lives. Calls of sessions end with
  // `reason`.
  void LeaveBehind(const absl::Status& reason);
  // The counts of all steps since the engine was opened.
  ExpertProfile CountedUse() const;
  void ComputeIdentity() const;

  EnginePlan plan_;
  mutable std::once_flag identity_once_;
  mutable SessionIdentity identity_;
  mutable std::vector<OtherCache> other_caches_;
  mutable std::string fingerprint_;
  const std::string device_name_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<EngineMemory> memory_;  // null while suspended
  // Used by any thread.
  mutable Mutex weights_mutex_;
  const Weights* counted_weights_ ABSL_GUARDED_BY(weights_mutex_) = nullptr;  // memory_'s
  // Counts of weights that were freed.
  std::optional<ExpertProfile> past_profile_ ABSL_GUARDED_BY(weights_mutex_);
  ExpertTraffic past_traffic_ ABSL_GUARDED_BY(weights_mutex_);
  // The last result of expert_traffic, and whether it stays the last: the device does not answer.
  mutable ExpertTraffic last_traffic_ ABSL_GUARDED_BY(weights_mutex_);
  std::atomic<bool> left_behind_ = false;
  std::atomic<double> predicted_decode_ = 0;
  mutable SessionCounters counters_;
  mutable EngineGate gate_;
  std::optional<KeptRows> kept_;                   // while suspended; none: the rows were lost
  std::unique_ptr<ProfileKeeper> profile_keeper_;  // null: no profile is kept
};

}  // namespace dsv4
