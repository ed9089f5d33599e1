// SPDX-License-Identifier: Apache-2.0
// An engine: one model's weights on its devices, the KV block pool, the workspaces, and the forward
// pass that its sessions share. Every byte is planned and allocated when it opens.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/registry/dispatch.h"
#include "kernels/tuning/tuning_file.h"
#include "lib/base/mutex.h"
#include "lib/device/device.h"
#include "lib/dist/device_communicators.h"
#include "lib/dist/process_group.h"
#include "lib/io/replaced_file.h"
#include "lib/kv/kv_cache.h"
#include "lib/model/config.h"
#include "lib/model/model_ranks.h"
#include "lib/model/shard.h"
#include "lib/model/synthetic.h"
#include "lib/model/weights.h"
#include "lib/runtime/canary.h"
#include "lib/runtime/counters.h"
#include "lib/runtime/engine_facts.h"
#include "lib/runtime/engine_gate.h"
#include "lib/runtime/engine_text.h"
#include "lib/runtime/group.h"
#include "lib/runtime/profile_keeper.h"
#include "lib/runtime/scheduler.h"
#include "lib/runtime/session_image.h"
#include "lib/runtime/step_batch.h"
#include "lib/runtime/step_runner.h"

namespace dsv4 {

struct EngineOptions {
  Backend backend = Backend::kCpu;
  // Uses the cuda backend instead of `backend` if `devices` are SM12x GPUs that pass the
  // known-answer test and have room for the engine. Otherwise Engine::backend_reason gives the
  // reason.
  bool prefer_gpu = false;
  Numerics numerics = Numerics::kPublished;
  // How rows of the cache are stored: kPacked or kBf16 under published numerics (both lossless),
  // kF32 under the others, kFp8PerTensor under all. Empty: kPacked or kF32.
  std::optional<RowFormat> cache_format{};
  // The backend's devices, one for each rank of the engine; empty = device 0. On the CPU, 0 to one
  // less than their number: ranks that share its cores. GPUs are of one architecture. What an
  // engine computes does not depend on their number (docs/adr/0020-exact-split.md).
  std::vector<int32_t> devices{};
  // A group of processes that split the model, with one device each. CUDA only. The other options
  // must be the same in all of them.
  GroupPlace group{};
  int64_t context_tokens = 0;        // 0 = max_position_embeddings, the limit
  int64_t cache_tokens = 0;          // 0 = context_tokens
  int32_t max_sessions = 0;          // 0 = 4
  int32_t prefill_chunk_tokens = 0;  // 0 = 256
  int32_t threads = 0;               // 0 = one per usable core
  int32_t max_draft_tokens = 0;      // 0..7: drafts that sessions may ask for; plans the drafter
  // The drafter; empty: the checkpoint's. NotFound if the checkpoint has another one or none.
  std::optional<DrafterKind> drafter{};
  // See PlanResidency. Without devices with memory of their own: host_bytes alone, else
  // Unsupported. cpu_experts: on one device; the CPU computes them with `threads`.
  ExpertBudgets weight_budgets{};
  // File that counts how often experts were chosen (lib/model/expert_profile.h), by which they are
  // placed. Empty: none. It need not exist. It is replaced when the engine closes or is suspended,
  // and at least every `profile_interval` while the engine is used. Errors: InvalidArgument if all
  // experts are in one kind of memory, Unsupported in a group of processes.
  std::string expert_profile{};
  std::chrono::milliseconds profile_interval = std::chrono::minutes(5);
  // Directory of tuning files that replace this build's files for the same kernels; empty: none.
  // Unsupported on a backend whose kernels have no knobs.
  std::string tuning_dir{};
  // Run the known-answer test on GPUs before weights are loaded (ProveOnce). Unsupported if it
  // fails.
  bool prove = false;
  // Compute the folder's canary after loading. Engine::canary returns the result.
  bool canary = false;
  // For verification, not part of the public interface:
  int32_t config_number = -1;   // see ProofOptions::config
  bool drafts = false;          // plan rows and buffers of the drafter
  int32_t logit_rows = 0;       // rows whose logits one step may ask for, if more than it needs
  uint64_t omitted_points = 0;  // PointBit set, reference backend only
  // For measurements: random weights for this many layers of config.json; no weights are read.
  // 0 = ModelConfig::synthetic_layers.
  int64_t synthetic_layers = 0;
  SyntheticOptions synthetic{};
  bool graphs = true;                           // whether a device records steps of few rows
  ExchangePath exchange = ExchangePath::kAuto;  // between GPUs
  // (done bytes, total bytes) of loading; false cancels.
  std::function<bool(int64_t, int64_t)> progress{};
};

// The memory of an engine. The byte counts of `info` equal those of the opened engine.
struct EnginePlan {
  EngineInfo info;
  ModelConfig config;
  KvPlan cache;
  std::string weight_format;  // see Weights
};

class Engine {
 public:
  ~Engine();
  // Opens a model folder. Errors name the file, key, tensor or option. Among them
  // OutOfDeviceMemory, before a weight is read, if the device's free memory is smaller than the
  // plan.
  static absl::StatusOr<std::shared_ptr<Engine>> Open(const std::string& folder,
                                                      const EngineOptions& options);
  // Opens a rank of a group that another process leads, and computes its part of the steps until
  // the leader closes. Errors: those of Open and FollowLeader.
  static absl::Status Serve(const std::string& folder, const EngineOptions& options,
                            absl::FunctionRef<bool(int64_t rows)> keep_serving);
  // An engine on random weights for `config_json`, without a folder: see SyntheticCheckpoint.
  static absl::StatusOr<std::shared_ptr<Engine>> OpenRandom(absl::string_view config_json,
                                                            const EngineOptions& options);
  // Plans an engine, with the errors of Open except those about values of weights. Reads only the
  // files' headers, and allocates neither cache nor activations.
  static absl::StatusOr<EnginePlan> Plan(const std::string& folder, const EngineOptions& options);
  const EngineFacts& facts() const { return facts_; }
  const EngineInfo& info() const { return facts_.info; }
  const ModelConfig& config() const { return facts_.config; }
  const GenerationConfig& generation() const { return facts_.generation; }
  const EngineText& text() const { return text_; }
  // NotFound when the folder has no tokenizer.json.
  absl::StatusOr<const Tokenizer*> tokenizer() const { return text_.tokenizer(); }
  const std::vector<int32_t>& eos_tokens() const { return facts_.eos_tokens; }
  int32_t token_limit() const { return facts_.token_limit; }
  const std::vector<int32_t>& token_gaps() const { return facts_.token_gaps; }

  // The identity that a saved session must have to be loaded. The first call reads the ends of all
  // tensors. Any thread.
  const SessionIdentity& identity() const;
  // The identities of engines with another cache format or other cpu_experts; as identity().
  absl::Span<const OtherCache> other_caches() const;
  // The checkpoint's fingerprint in hexadecimal; as identity().
  const std::string& fingerprint() const;
  const std::string& device_name() const { return device_name_; }
  // Why an engine opened with prefer_gpu does not use a GPU; empty if it does.
  const std::string& backend_reason() const { return backend_reason_; }
  const std::string& weight_format() const { return weight_format_; }

  // The traffic of the first rank. The experts of all ranks move alike. Any thread.
  ExpertTraffic expert_traffic() const;

  // Frees the memory of weights, cache and workspace. Keeps the sessions' cache rows in host memory
  // or, if `folder` is not empty, in a file there. Does nothing if the engine is suspended. Errors
  // leave the engine running: see dsv4_engine_suspend.
  absl::Status Suspend(const std::string& folder);
  // Loads the weights and restores the cache; sessions continue with the same bits. `progress` as
  // in EngineOptions. Errors leave the engine suspended: see dsv4_engine_resume.
  absl::Status Resume(const std::function<bool(int64_t, int64_t)>& progress);
  // Any thread.
  bool suspended() const { return !gate_.open(); }

  // For sessions. A call that computes or uses cache rows holds a visit.
  EngineGate& gate() const { return gate_; }
  KvCache& cache() const { return *cache_; }
  Scheduler& scheduler() const { return *scheduler_; }
  SessionCounters& counters() const { return counters_; }
  // For verification: the forward pass and a batch for it. Not while a session computes.
  ModelRanks& model() { return *model_; }
  // The weights of a rank.
  WeightViews& views(int rank) { return weights_->views(rank); }
  StepBatch& batch() { return *batch_; }
  Device& device() { return *devices_.front(); }
  // The kernels of the CPU's share of the experts; null without a share.
  Dispatch* cpu_dispatch() { return cpu_dispatch_.get(); }
  // Benchmarks: observe every launch of the first rank. Not while a step runs.
  void set_recorder(LaunchRecorder* recorder) {
    dispatches_.front()->set_recorder(recorder);
    model_->set_watched(recorder != nullptr);
  }

 private:
  Engine() = default;
  // For options that name their backend. `room`: refuse a plan that exceeds the devices' free
  // memory.
  static absl::StatusOr<EnginePlan> PlanOn(const std::string& folder, const EngineOptions& options,
                                           bool room);
  // From the folder, or of random weights.
  absl::StatusOr<std::unique_ptr<Checkpoint>> OpenCheckpoint(const std::string& folder,
                                                             const EngineOptions& options) const;
  absl::Status Configure(const std::string& folder, const EngineOptions& options);
  absl::Status Settle(const EngineOptions& options);
  // Opens the rest, after the configuration and the tokenizer were read.
  absl::Status Load(const std::string& folder, const EngineOptions& options);
  absl::Status LoadText(const std::string& folder);
  absl::Status ReadTuning(const EngineOptions& options);
  absl::Status CheckDevices(const EngineOptions& options) const;
  absl::Status CheckBudgets(const EngineOptions& options) const;
  absl::Status CheckCpuShare(const EngineOptions& options) const;
  absl::Status ReadProfile(const Checkpoint& checkpoint, const EngineOptions& options);
  // Joins the group's other processes.
  absl::Status JoinGroup(const ContentHash& fingerprint, const EngineOptions& options);
  absl::Status LoadWeights(std::unique_ptr<Checkpoint> checkpoint, const EngineOptions& options);
  // On GPUs or the CPU, as options.prefer_gpu asks.
  static absl::StatusOr<std::shared_ptr<Engine>> OpenPreferred(const std::string& folder,
                                                               const EngineOptions& options);
  static absl::StatusOr<std::shared_ptr<Engine>> OpenRanks(const std::string& folder,
                                                           const EngineOptions& options);
  absl::Status OpenDevices(const EngineOptions& options);
  // Opens the CPU that computes a share of the experts.
  absl::Status OpenCpu(const EngineOptions& options);
  int ranks() const { return shards_.ranks; }
  // The device of a rank. This process has the ranks [first_rank_, first_rank_ + devices_.size()).
  // For other ranks: a device of this process of the same kind.
  bool IsHere(int rank) const {
    return rank >= first_rank_ && rank < first_rank_ + static_cast<int>(devices_.size());
  }
  size_t DeviceOf(int rank) const {
    return IsHere(rank) ? static_cast<size_t>(rank - first_rank_) : 0;
  }
  WeightTargets Targets(const EngineOptions& options) const;
  // The memory of exchanges on each device.
  int64_t ExchangeBytes() const {
    return ranks() > 1 && !devices_.front()->host_memory() ? ExchangeDeviceBytes() : 0;
  }
  absl::Status DescribeWeights(const EngineOptions& options);
  absl::Status ChooseDrafter(const EngineOptions& options);
  // The ranks' views of the weights, and their sizes.
  void ShareOut();
  // Whether the checkpoint's drafter is planned for.
  bool PlansDrafter() const {
    return facts_.info.drafter != DrafterKind::kNone && facts_.info.drafter != DrafterKind::kNgram;
  }
  // Fills info's bytes from described weights.
  absl::StatusOr<KvPlan> PlanMemory(const EngineOptions& options);
  absl::Status ExpectRoom(const std::string& folder, const EngineOptions& options);
  // OutOfDeviceMemory if a device has less free memory than planned.
  absl::Status CheckRoom() const;
  // OutOfHostMemory if the host has less available memory than planned for its experts.
  absl::Status CheckHostRoom(const EngineOptions& options) const;
  KvCacheShape CacheShape() const;
  StepLimits Limits(const EngineOptions& options) const;
  Model::Parts ModelParts(const EngineOptions& options, int rank,
                          absl::Span<const LayerCache> layers) const;
  absl::Status Build(const EngineOptions& options);
  // Computes the folder's canary, if it has one, and raises an alarm if its logits differ.
  absl::Status CheckCanary(const EngineOptions& options);
  // Creates the forward pass over weights and cache.
  absl::Status BuildModel(const EngineOptions& options);
  // The sessions' cache rows while the engine is suspended.
  struct KeptRows {
    HeldBlocks held;
    std::unique_ptr<std::byte[]> memory;
    std::optional<ReplacedFile> file;  // in place of memory
    absl::Span<std::byte> bytes();
  };
  absl::StatusOr<KeptRows> KeepRows(const std::string& folder);
  absl::Status TakeBack(const std::function<bool(int64_t, int64_t)>& progress);
  // Frees what TakeBack makes.
  void GiveBack();
  // Replaces the profile's file, if it would change. Any thread; failures are logged.
  void WriteProfile();
  void ComputeIdentity() const;

  // The options of opening, without `progress`.
  std::string folder_;
  std::optional<Canary> canary_;  // until it is computed
  EngineOptions options_;
  EngineFacts facts_;
  EngineText text_;
  ContentHash config_hash_;
  mutable std::once_flag identity_once_;
  mutable SessionIdentity identity_;
  mutable std::vector<OtherCache> other_caches_;
  mutable std::string fingerprint_;
  std::string device_name_, backend_reason_;
  std::string weight_format_;
  std::vector<TuningFile> tuning_files_;  // of the option, until the device is known
  std::vector<uint32_t> with_text_;       // mask; empty: all tokens
  Shards shards_;
  int first_rank_ = 0;                            // of this process
  std::vector<std::unique_ptr<Device>> devices_;  // of the ranks
  std::unique_ptr<Device> cpu_;             // that has a share of the experts; null: it has none
  std::unique_ptr<Dispatch> cpu_dispatch_;  // with its kernels
  std::string profile_path_;
  ContentHash profile_checkpoint_;
  Mutex profile_mutex_;  // of the file; taken before weights_mutex_
  std::optional<ExpertProfile> written_profile_ ABSL_GUARDED_BY(profile_mutex_);
  // Of calls that open, suspend or resume, and of those that hold a visit.
  std::optional<ExpertProfile> profile_;  // as it was when the weights were loaded or given back
  std::unique_ptr<Weights> weights_;      // null while suspended
  // Of any thread.
  mutable Mutex weights_mutex_;
  const Weights* counted_weights_ ABSL_GUARDED_BY(weights_mutex_) =
      nullptr;                                                  // weights_, once loaded
  ExpertProfile past_profile_ ABSL_GUARDED_BY(weights_mutex_);  // of weights given back
  ExpertTraffic past_traffic_ ABSL_GUARDED_BY(weights_mutex_);
  std::vector<std::unique_ptr<Dispatch>> dispatches_;  // of the ranks
  ProcessGroup* group_ = nullptr;                      // model_'s
  std::unique_ptr<TellWrites> writes_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<ProcessGroup> joined_;  // until model_ has it
  std::unique_ptr<ModelRanks> model_;
  std::unique_ptr<StepBatch> batch_;
  std::unique_ptr<StepRunner> runner_;
  std::unique_ptr<Scheduler> scheduler_;
  mutable SessionCounters counters_;
  mutable EngineGate gate_;
  std::optional<KeptRows> kept_;                   // while suspended
  std::unique_ptr<ProfileKeeper> profile_keeper_;  // null: no profile is kept
};

}  // namespace dsv4
