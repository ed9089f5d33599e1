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
#include "lib/runtime/group.h"
#include "lib/runtime/profile_keeper.h"
#include "lib/runtime/scheduler.h"
#include "lib/runtime/session_image.h"
#include "lib/runtime/step_batch.h"
#include "lib/runtime/step_runner.h"

namespace dsv4 {

struct EngineOptions {
  Backend backend = Backend::kCpu;
  // Takes the cuda backend in place of `backend` where `devices` are GPUs of SM12x that prove
  // themselves and have room for the engine: Engine::backend_reason says why where they do not.
  bool prefer_gpu = false;
  Numerics numerics = Numerics::kPublished;
  // How rows of the cache are stored: kPacked or kBf16 under published numerics, which they hold
  // exactly; kF32 or kFp8PerTensor under the others. Empty: the first of these.
  std::optional<RowFormat> cache_format{};
  // The backend's devices, one for each rank of the engine; empty = device 0. On the CPU, 0 to one
  // less than their number: ranks that share its cores. GPUs are of one architecture. What an
  // engine computes does not depend on their number (docs/adr/0020-exact-split.md).
  std::vector<int32_t> devices{};
  // Processes with one device each that share the model out instead: cuda alone. The other options
  // are the same in all of them.
  GroupPlace group{};
  int64_t context_tokens = 0;        // 0 = max_position_embeddings, the limit
  int64_t cache_tokens = 0;          // 0 = context_tokens
  int32_t max_sessions = 0;          // 0 = 4
  int32_t prefill_chunk_tokens = 0;  // 0 = 256
  int32_t threads = 0;               // 0 = one per usable core
  int32_t max_draft_tokens = 0;      // 0..7: drafts that sessions may ask for; plans the drafter
  // Who drafts them; empty: the checkpoint's drafter. NotFound where the checkpoint has another one
  // or none.
  std::optional<DrafterKind> drafter{};
  // See PlanResidency. Without devices with memory of their own: host_bytes alone, else
  // Unsupported. cpu_experts: on one device; the CPU computes them with `threads`.
  ExpertBudgets weight_budgets{};
  // File of how often experts were chosen (lib/model/expert_profile.h), by which they are placed.
  // It is written anew when the engine closes or is suspended, and at least every
  // `profile_interval` while it is used; it need not exist before. Empty: none. InvalidArgument
  // where all experts lie in one memory, Unsupported in a group of processes.
  std::string expert_profile{};
  std::chrono::milliseconds profile_interval = std::chrono::minutes(5);
  // Directory of tuning files that take the place of this build's for the same kernels; empty:
  // none. Unsupported on a backend whose kernels have no knobs.
  std::string tuning_dir{};
  // GPUs give known answers before a weight is loaded (ProveOnce); Unsupported where they do not.
  bool prove = false;
  // The folder's canary is computed once the weights are there; Engine::canary says with what
  // result.
  bool canary = false;
  // For verification, not part of the public interface:
  int32_t config_number = -1;   // see ProofOptions::config
  bool drafts = false;          // plan rows and buffers of the drafter
  int32_t logit_rows = 0;       // rows whose logits one step may ask for, if more than it needs
  uint64_t omitted_points = 0;  // PointBit set, reference backend only
  // For measurements: random weights for this many of the layers that config.json describes, and no
  // others are read. 0 = ModelConfig::synthetic_layers.
  int64_t synthetic_layers = 0;
  SyntheticOptions synthetic{};
  bool graphs = true;                           // whether a device records steps of few rows
  ExchangePath exchange = ExchangePath::kAuto;  // between GPUs
  // (done bytes, total bytes) of loading; false cancels.
  std::function<bool(int64_t, int64_t)> progress{};
};

// What an engine would take: info's byte counts are those of the opened engine.
struct EnginePlan {
  EngineInfo info;
  ModelConfig config;
  KvPlan cache;
  std::string weight_format;  // see Weights
};

class Engine {
 public:
  ~Engine();
  // Opens a model folder. Errors name the file, key, tensor or option. OutOfDeviceMemory before a
  // weight is read where the device says that it has no room.
  static absl::StatusOr<std::shared_ptr<Engine>> Open(const std::string& folder,
                                                      const EngineOptions& options);
  // Opens a rank of a group that another process leads, and does what that says until it closes.
  // Errors: Open's, and those of FollowLeader.
  static absl::Status Serve(const std::string& folder, const EngineOptions& options,
                            absl::FunctionRef<bool(int64_t rows)> keep_serving);
  // An engine on random weights for `config_json`, without a folder: see SyntheticCheckpoint.
  static absl::StatusOr<std::shared_ptr<Engine>> OpenRandom(absl::string_view config_json,
                                                            const EngineOptions& options);
  // The same checks and refusals but those of the weights' values, from the files' headers alone:
  // reads no weight and allocates neither cache nor activations.
  static absl::StatusOr<EnginePlan> Plan(const std::string& folder, const EngineOptions& options);
  const EngineFacts& facts() const { return facts_; }
  const EngineInfo& info() const { return facts_.info; }
  const ModelConfig& config() const { return facts_.config; }
  const GenerationConfig& generation() const { return facts_.generation; }
  // NotFound when the folder has no tokenizer.json.
  absl::StatusOr<const Tokenizer*> tokenizer() const { return facts_.ExpectTokenizer(); }
  // That the folder shows; `other` where it shows none, or has no tokenizer.
  ChatEncoder ChatEncoderOr(ChatEncoder other) const {
    return facts_.chat_encoder ? facts_.chat_encoder->encoder : other;
  }
  // See EngineFacts.
  absl::StatusOr<std::shared_ptr<const grammar::Vocabulary>> grammar_tokens() const {
    return facts_.GrammarVocabulary();
  }
  const std::vector<int32_t>& eos_tokens() const { return facts_.eos_tokens; }
  int32_t token_limit() const { return facts_.token_limit; }
  const std::vector<int32_t>& token_gaps() const { return facts_.token_gaps; }

  // What a saved session must agree in. Reads the ends of all tensors the first time. Any thread.
  const SessionIdentity& identity() const;
  // Of engines with another cache format or another cpu_experts; like identity().
  absl::Span<const OtherCache> other_caches() const;
  // Of the checkpoint, in hexadecimal; like identity().
  const std::string& fingerprint() const;
  const std::string& device_name() const { return device_name_; }
  // Why no GPU was taken, of an engine opened with prefer_gpu; else empty.
  const std::string& backend_reason() const { return backend_reason_; }
  const std::string& weight_format() const { return weight_format_; }

  // Of the first rank, whose experts move as the others' do. Any thread.
  ExpertTraffic expert_traffic() const;

  // Frees the memory of weights, cache and workspace. What sessions hold is kept in host memory or,
  // if `folder` is not empty, in a file there. Does nothing if the engine is suspended. Errors
  // leave the engine running: see dsv4_engine_suspend.
  absl::Status Suspend(const std::string& folder);
  // Loads the weights and restores the cache; sessions continue with the same bits. `progress` as
  // in EngineOptions. Errors leave the engine suspended: see dsv4_engine_resume.
  absl::Status Resume(const std::function<bool(int64_t, int64_t)>& progress);
  // Any thread.
  bool suspended() const { return !gate_.open(); }

  // For sessions.
  // Whoever computes or uses cache rows holds a visit.
  EngineGate& gate() const { return gate_; }
  KvCache& cache() const { return *cache_; }
  Scheduler& scheduler() const { return *scheduler_; }
  SessionCounters& counters() const { return counters_; }
  // For verification: the forward pass and a batch for it. Not while a session computes.
  ModelRanks& model() { return *model_; }
  // What a rank computes with.
  WeightViews& views(int rank) { return weights_->views(rank); }
  StepBatch& batch() { return *batch_; }
  Device& device() { return *devices_.front(); }
  // Of the CPU's share of the experts; null where it has none.
  Dispatch* cpu_dispatch() { return cpu_dispatch_.get(); }
  // Benchmarks: observe every launch of the first rank. Not while a step runs.
  void set_recorder(LaunchRecorder* recorder) {
    dispatches_.front()->set_recorder(recorder);
    model_->set_watched(recorder != nullptr);
  }

 private:
  Engine() = default;
  // Of options that name their backend. `room`: refuses a plan that the devices have no room for.
  static absl::StatusOr<EnginePlan> PlanOn(const std::string& folder, const EngineOptions& options,
                                           bool room);
  // Of the folder, or random weights.
  absl::StatusOr<std::unique_ptr<Checkpoint>> OpenCheckpoint(const std::string& folder,
                                                             const EngineOptions& options) const;
  absl::Status Configure(const std::string& folder, const EngineOptions& options);
  absl::Status Settle(const EngineOptions& options);
  // The rest of opening, once the configuration and the tokenizer are read.
  absl::Status Load(const std::string& folder, const EngineOptions& options);
  absl::Status LoadTokenizer(const std::string& folder);
  absl::Status ReadTuning(const EngineOptions& options);
  absl::Status CheckDevices(const EngineOptions& options) const;
  absl::Status CheckBudgets(const EngineOptions& options) const;
  absl::Status CheckCpuShare(const EngineOptions& options) const;
  absl::Status ReadProfile(const Checkpoint& checkpoint, const EngineOptions& options);
  // Meets the other processes of the group.
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
  // Ranks of this process are [first_rank_, first_rank_ + devices_.size()). For another process's
  // rank, a device here that is like its own.
  bool IsHere(int rank) const {
    return rank >= first_rank_ && rank < first_rank_ + static_cast<int>(devices_.size());
  }
  size_t DeviceOf(int rank) const {
    return IsHere(rank) ? static_cast<size_t>(rank - first_rank_) : 0;
  }
  WeightTargets Targets(const EngineOptions& options) const;
  // What exchanges take on each device.
  int64_t ExchangeBytes() const {
    return ranks() > 1 && !devices_.front()->host_memory() ? ExchangeDeviceBytes() : 0;
  }
  absl::Status DescribeWeights(const EngineOptions& options);
  absl::Status ChooseDrafter(const EngineOptions& options);
  // The ranks' views of the weights, and what each of them takes.
  void ShareOut();
  // Whether the checkpoint's drafter is planned for.
  bool PlansDrafter() const {
    return facts_.info.drafter != DrafterKind::kNone && facts_.info.drafter != DrafterKind::kNgram;
  }
  // Fills info's bytes from described weights.
  absl::StatusOr<KvPlan> PlanMemory(const EngineOptions& options);
  absl::Status ExpectRoom(const std::string& folder, const EngineOptions& options);
  // OutOfDeviceMemory where a device has less free than the plan takes.
  absl::Status CheckRoom() const;
  // OutOfHostMemory where the host has less available than its experts take by the budgets.
  absl::Status CheckHostRoom(const EngineOptions& options) const;
  KvCacheShape CacheShape() const;
  StepLimits Limits(const EngineOptions& options) const;
  Model::Parts ModelParts(const EngineOptions& options, int rank,
                          absl::Span<const LayerCache> layers) const;
  absl::Status Build(const EngineOptions& options);
  // Computes the folder's canary, if it has one, and raises the alarm where its logits are others.
  absl::Status CheckCanary(const EngineOptions& options);
  // The forward pass over weights and cache, and what runs it.
  absl::Status BuildModel(const EngineOptions& options);
  // What sessions hold of a suspended engine.
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

  // Of opening, without its progress.
  std::string folder_;
  std::optional<Canary> canary_;  // until it is computed
  EngineOptions options_;
  EngineFacts facts_;
  ContentHash config_hash_, tokenizer_hash_;
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
