// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/engine.h"

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/engine/group.h"

namespace dsv4 {

Engine::~Engine() {
  profile_keeper_.reset();  // writes the counts of the weights
}

absl::StatusOr<EnginePlan> Engine::Plan(const std::string& folder, const EngineOptions& options) {
  DSV4_ASSIGN_OR_RETURN(EngineSettings settings, Settle(folder, options));
  return EnginePlan::Make(std::move(settings));
}

absl::StatusOr<std::shared_ptr<Engine>> Engine::Open(const std::string& folder,
                                                     const EngineOptions& options) {
  DSV4_ASSIGN_OR_RETURN(EnginePlan plan, Plan(folder, options));
  return Open(std::move(plan), options.progress);
}

absl::StatusOr<std::shared_ptr<Engine>> Engine::OpenRandom(absl::string_view config_json,
                                                           const EngineOptions& options) {
  DSV4_ASSIGN_OR_RETURN(EngineSettings settings, SettleRandom(config_json, options));
  DSV4_ASSIGN_OR_RETURN(EnginePlan plan, EnginePlan::Make(std::move(settings)));
  return Open(std::move(plan), options.progress);
}

absl::StatusOr<std::shared_ptr<Engine>> Engine::Open(
    EnginePlan plan, const std::function<bool(int64_t, int64_t)>& progress) {
  const int32_t rank = plan.settings().first_rank();
  if (rank != 0) {
    return WithArgument(
        InvalidArgument("option group_rank = ", rank,
                        ": only rank 0 of a group opens the engine; the others serve it"),
        "group_rank");
  }
  return OpenRank(std::move(plan), progress);
}

absl::StatusOr<std::shared_ptr<Engine>> Engine::OpenRank(
    EnginePlan plan, const std::function<bool(int64_t, int64_t)>& progress) {
  std::shared_ptr<Engine> engine(new Engine(std::move(plan)));
  // Reading the weights of a plan that does not fit would take minutes.
  DSV4_RETURN_IF_ERROR(engine->plan_.CheckRoom());
  DSV4_RETURN_IF_ERROR(engine->plan_.UseKeptProfile());
  DSV4_RETURN_IF_ERROR(engine->Allocate(progress));
  return engine;
}

absl::Status Engine::Serve(const std::string& folder, const EngineOptions& options,
                           absl::FunctionRef<bool(int64_t rows)> keep_serving) {
  if (options.group.rank == 0) {
    return WithArgument(
        InvalidArgument(
            "option group_rank = 0: rank 0 opens the engine; only the other ranks serve it"),
        "group_rank");
  }
  DSV4_ASSIGN_OR_RETURN(EnginePlan plan, Plan(folder, options));
  DSV4_ASSIGN_OR_RETURN(const std::shared_ptr<Engine> engine,
                        OpenRank(std::move(plan), options.progress));
  const EngineMemory& memory = *engine->memory_;
  return FollowLeader(memory.group(), &memory.model(), engine->cache_.get(), keep_serving);
}

// What must be the same for the processes to compute the same steps.
absl::StatusOr<std::unique_ptr<ProcessGroup>> Engine::JoinGroup() {
  const EngineSettings& settings = plan_.settings();
  const EngineOptions& options = settings.options;
  const EngineDevices& devices = plan_.devices();
  const ResidencyPlan& plan = info().residency;
  const std::string record = absl::StrCat(
      "group_size = ", options.group.ranks, "\nmodel config.json = ", HexOf(settings.config_hash),
      "\nmodel fingerprint = ", HexOf(plan_.checkpoint().Fingerprint()),
      "\ntokenizer.json = ", HexOf(text().hash()),
      "\nsynthetic layers = ", config().synthetic_layers,
      "\narchitecture = ", ComputeCapabilityName(devices.front().traits().compute_capability),
      "\ncontext_tokens = ", info().context_tokens, "\ncache_tokens = ", info().cache_tokens,
      "\nmax_sessions = ", info().max_sessions,
      "\nprefill_chunk_tokens = ", info().prefill_chunk_tokens,
      "\nnumerics = ", NumericsName(info().numerics),
      "\ncache_format = ", RowFormatName(info().cache_format),
      "\ndrafter = ", DrafterName(info().drafter), "\nmax_draft_tokens = ", info().max_draft_tokens,
      "\ndevice_weight_bytes = ", options.weight_budgets.device_bytes,
      "\nhost_weight_bytes = ", options.weight_budgets.host_bytes,
      "\nset of kernels = ", options.kernel_set == KernelSet::kFirst ? "first" : "second",
      "\ngraphs = ", options.graphs ? "on" : "off", "\nrows of logits = ", options.logit_rows,
      "\nplan = ", info().weight_bytes, " bytes of weights, ", plan.on_device,
      " experts on the device, ", plan.on_host, " on the host and ", plan.on_disk, " on disk");
  return ProcessGroup::Join(options.group, {&devices.front(), &devices.front_dispatch()}, record);
}

absl::Status Engine::Allocate(const std::function<bool(int64_t, int64_t)>& progress) {
  const EngineOptions& options = plan_.settings().options;
  EngineMemory::Loading loading;
  loading.progress = progress;
  std::optional<ExpertProfile> profile = plan_.profile();
  if (options.group.grouped()) {
    DSV4_ASSIGN_OR_RETURN(loading.group, JoinGroup());
    DSV4_ASSIGN_OR_RETURN(profile, ProfileOfLeader(loading.group.get(), profile));
  }
  loading.profile = profile ? &*profile : nullptr;
  DSV4_ASSIGN_OR_RETURN(memory_, EngineMemory::Allocate(&plan_, &cache_, std::move(loading)));
  plan_.TakeSizes(memory_->weights(), memory_->model());
  {
    MutexLock lock(&weights_mutex_);
    counted_weights_ = &memory_->weights();
  }
  scheduler_ = std::make_unique<Scheduler>(&memory_->runner(), info().prefill_chunk_tokens,
                                           info().max_sessions);
  DSV4_RETURN_IF_ERROR(LimitSteps());
  plan_.Measure(memory_->weights().checkpoint().paths());
  plan_.Settle();
  predicted_decode_ = info().expected_decode;
  LogOpened();
  if (!options.expert_profile.empty()) {
    DSV4_ASSIGN_OR_RETURN(profile_keeper_,
                          ProfileKeeper::Start(options.profile_interval,
                                               {options.expert_profile, plan_.profile_checkpoint()},
                                               [this] { return CountedUse(); }));
  }
  return absl::OkStatus();
}

absl::Status Engine::LimitSteps() {
  const std::chrono::milliseconds limit = plan_.settings().options.step_limit.value_or(kStepLimit);
  if (limit == std::chrono::milliseconds(0) || device().host_memory()) return absl::OkStatus();
  return memory_->runner().LimitSteps(limit,
                                      [this](const absl::Status& reason) { LeaveBehind(reason); });
}

// The left thread has pointers to all of it, and locks.
void Engine::LeaveBehind(const absl::Status& reason) {
  static Mutex mutex;
  static auto* const engines = new std::vector<std::shared_ptr<Engine>>;
  left_behind_ = true;
  gate_.Refuse(reason);
  cache_->LeaveBehind();
  Log(LogLevel::kError, device_name_, ": ", reason.message());
  const MutexLock lock(&mutex);
  engines->push_back(shared_from_this());
}

ExpertProfile Engine::CountedUse() const {
  MutexLock lock(&weights_mutex_);
  if (counted_weights_ != nullptr) return counted_weights_->use()->Total();
  return past_profile_.value_or(ExpertProfile());
}

void Engine::LogOpened() const {
  Log(LogLevel::kInfo, "opened on backend ", BackendName(info().backend), ", ", info().threads,
      " threads: weights ", info().weight_bytes, " bytes, cache ", info().cache_bytes, " bytes (",
      RowFormatName(info().cache_format), " rows), workspace ", info().workspace_bytes, " bytes");
  if (const ExpertPages* const pages = memory_->weights().experts(0).pages(); pages != nullptr) {
    Log(plan_.settings().options.weight_budgets.host_bytes > 0 ? LogLevel::kInfo
                                                               : LogLevel::kWarning,
        info().residency.on_host, " of ", info().residency.all(),
        " routed experts stay in memory, ", pages->locked_bytes(), " of ",
        info().residency.host_bytes(),
        " bytes of them locked; the others are read from disk when a step needs them");
  } else if (info().residency.on_device < info().residency.all()) {
    Log(LogLevel::kInfo, info().residency.on_host, " of ", info().residency.all(),
        " routed experts in host memory, ", info().residency.on_disk, " on disk; they take ",
        info().residency.host_bytes(), " bytes of host memory");
  }
}

const SessionIdentity& Engine::identity() const {
  std::call_once(identity_once_, [this] { ComputeIdentity(); });
  return identity_;
}

absl::Span<const OtherCache> Engine::other_caches() const {
  std::call_once(identity_once_, [this] { ComputeIdentity(); });
  return other_caches_;
}

const std::string& Engine::fingerprint() const {
  std::call_once(identity_once_, [this] { ComputeIdentity(); });
  return fingerprint_;
}

void Engine::ComputeIdentity() const {
  const ContentHash tensors = memory_->weights().checkpoint().Fingerprint();
  const ContentHash& config_hash = plan_.settings().config_hash;
  fingerprint_ = HexOf(tensors);
  const KvCacheShape& shape = cache_->shape();
  // The settings beyond the model's configuration that determine the bytes of rows and states.
  const auto cache_of = [&](RowFormat format) {
    return HashOf(absl::StrCat(NumericsName(info().numerics), " ", RowFormatName(format), " ",
                               shape.mtp_layers, " ", shape.streams_bytes, " ",
                               shape.compress_ratios.size()));
  };
  for (const RowFormat format :
       {RowFormat::kPacked, RowFormat::kBf16, RowFormat::kF32, RowFormat::kFp8PerTensor}) {
    if (format == shape.row_format) continue;
    other_caches_.push_back({RowFormatName(format), cache_of(format)});
  }
  identity_ = {.weights = HashOf(absl::StrCat(config_hash.high, " ", config_hash.low, " ",
                                              tensors.high, " ", tensors.low)),
               .tokenizer = text().hash(),
               .cache = cache_of(shape.row_format)};
}

ExpertTraffic Engine::expert_traffic() const {
  MutexLock lock(&weights_mutex_);
  if (counted_weights_ == nullptr) return past_traffic_;
  if (!left_behind_) last_traffic_ = counted_weights_->experts(0).traffic() + past_traffic_;
  return last_traffic_;
}

}  // namespace dsv4
