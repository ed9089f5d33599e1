// SPDX-License-Identifier: Apache-2.0
// How an engine opens: on GPUs that prove themselves or on the CPU, alone or as a rank of a group.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/runtime/canary_run.h"
#include "lib/runtime/device_proof.h"
#include "lib/runtime/engine.h"

namespace dsv4 {
namespace {

std::vector<int32_t> DevicesOf(const EngineOptions& options) {
  return options.devices.empty() ? std::vector<int32_t>{0} : options.devices;
}

// Whether the devices are GPUs that the cuda backend is written for, and prove themselves.
// Unsupported with the reason.
absl::Status GpusFit(const EngineOptions& options) {
  constexpr int32_t kFirst = 120, kLast = 129;  // compute capabilities
  if (options.numerics != Numerics::kPublished) {
    return Unsupported(NumericsName(options.numerics), " numerics run on the reference backend");
  }
  for (const int32_t index : DevicesOf(options)) {
    const absl::StatusOr<std::unique_ptr<Device>> device =
        Device::Open({.kind = DeviceKind::kCuda, .index = index});
    if (!device.ok()) return Unsupported(device.status().message());
    const int32_t capability = (*device)->traits().compute_capability;
    if (capability < kFirst || capability > kLast) {
      return Unsupported("cuda:", index, " (", (*device)->name(), ") has compute capability ",
                         ComputeCapabilityName(capability),
                         "; only 12.x is chosen by itself; backend cuda runs others, too");
    }
  }
  return ProveOnce(DevicesOf(options), options.tuning_dir);
}

EngineOptions OnGpus(EngineOptions options) {
  options.backend = Backend::kCuda;
  options.prefer_gpu = false;
  return options;
}

// What another backend may do all the same.
bool IsUnfit(const absl::Status& status) {
  return IsUnsupported(status) || IsOutOfDeviceMemory(status);
}

}  // namespace

absl::StatusOr<std::shared_ptr<Engine>> Engine::Open(const std::string& folder,
                                                     const EngineOptions& options) {
  if (options.group.rank != 0) {
    return WithArgument(
        InvalidArgument("option group_rank = ", options.group.rank,
                        ": only rank 0 of a group opens the engine; the others serve it"),
        "group_rank");
  }
  DSV4_ASSIGN_OR_RETURN(std::shared_ptr<Engine> engine, OpenPreferred(folder, options));
  DSV4_RETURN_IF_ERROR(engine->CheckCanary(options));
  return engine;
}

absl::StatusOr<std::shared_ptr<Engine>> Engine::OpenPreferred(const std::string& folder,
                                                              const EngineOptions& options) {
  if (!options.prefer_gpu) return OpenRanks(folder, options);
  absl::Status unfit = GpusFit(options);
  if (unfit.ok()) {
    absl::StatusOr<std::shared_ptr<Engine>> opened = OpenRanks(folder, OnGpus(options));
    if (opened.ok() || !IsUnfit(opened.status())) return opened;
    unfit = opened.status();
  }
  DSV4_ASSIGN_OR_RETURN(std::shared_ptr<Engine> engine, OpenRanks(folder, options));
  engine->backend_reason_ = std::string(unfit.message());
  Log(LogLevel::kInfo, "backend ", BackendName(options.backend), ": ", engine->backend_reason_);
  return engine;
}

absl::Status Engine::CheckCanary(const EngineOptions& options) {
  if (!canary_) return absl::OkStatus();
  const Canary canary = *std::exchange(canary_, std::nullopt);
  facts_.info.canary = CanaryState::kNotRun;
  if (options.numerics != Numerics::kPublished) {
    Log(LogLevel::kInfo, kCanaryFile, " was not computed: it is of the published numerics");
    return absl::OkStatus();
  }
  if (facts_.info.cache_format == RowFormat::kFp8PerTensor) {
    Log(LogLevel::kInfo, kCanaryFile,
        " was not computed: it is of rows that are the published "
        "quantiser's; this engine's are ",
        RowFormatName(facts_.info.cache_format));
    return absl::OkStatus();
  }
  const absl::StatusOr<CanaryResult> result = RunCanary(*this, canary);
  if (IsContextFull(result.status()) || IsOutOfBlocks(result.status())) {
    Log(LogLevel::kInfo, kCanaryFile, " was not computed: ", result.status().message());
    return absl::OkStatus();
  }
  DSV4_RETURN_IF_ERROR(result.status());
  if (result->distance <= canary.tolerance) {
    facts_.info.canary = CanaryState::kPassed;
    return absl::OkStatus();
  }
  facts_.info.canary = CanaryState::kFailed;
  counters_.CountAlarm(Alarm::kCanary);
  const bool other = !canary.fingerprint.empty() && canary.fingerprint != fingerprint();
  Log(LogLevel::kWarning, "alarm ", AlarmName(Alarm::kCanary), ": ", result->Describe(),
      ", tolerance ", canary.tolerance,
      other ? absl::StrCat("; it was recorded with checkpoint ", canary.fingerprint,
                           ", and this is ", fingerprint())
            : "");
  return absl::OkStatus();
}

absl::StatusOr<EnginePlan> Engine::Plan(const std::string& folder, const EngineOptions& options) {
  if (options.prefer_gpu && GpusFit(options).ok()) {
    absl::StatusOr<EnginePlan> plan = PlanOn(folder, OnGpus(options), true);
    if (plan.ok() || !IsUnfit(plan.status())) return plan;
  }
  return PlanOn(folder, options, false);
}

absl::Status Engine::Serve(const std::string& folder, const EngineOptions& options,
                           absl::FunctionRef<bool(int64_t rows)> keep_serving) {
  if (options.group.rank == 0) {
    return WithArgument(
        InvalidArgument(
            "option group_rank = 0: rank 0 opens the engine; only the other ranks serve it"),
        "group_rank");
  }
  const bool gpu = options.prefer_gpu && GpusFit(options).ok();
  DSV4_ASSIGN_OR_RETURN(const std::shared_ptr<Engine> engine,
                        OpenRanks(folder, gpu ? OnGpus(options) : options));
  return FollowLeader(engine->group_, engine->model_.get(), engine->cache_.get(), keep_serving);
}

absl::StatusOr<std::shared_ptr<Engine>> Engine::OpenRanks(const std::string& folder,
                                                          const EngineOptions& options) {
  std::shared_ptr<Engine> engine(new Engine);
  DSV4_RETURN_IF_ERROR(engine->Configure(folder, options));
  DSV4_RETURN_IF_ERROR(engine->LoadTokenizer(folder));
  DSV4_RETURN_IF_ERROR(engine->Load(folder, options));
  return engine;
}

absl::StatusOr<std::shared_ptr<Engine>> Engine::OpenRandom(absl::string_view config_json,
                                                           const EngineOptions& options) {
  std::shared_ptr<Engine> engine(new Engine);
  DSV4_ASSIGN_OR_RETURN(engine->facts_.config, ParseModelConfig(config_json, "random weights"));
  engine->facts_.config.synthetic_layers = engine->facts_.config.num_hidden_layers;
  engine->facts_.token_limit = static_cast<int32_t>(engine->facts_.config.vocab_size);
  engine->facts_.eos_tokens = engine->facts_.config.eos_token_ids;
  DSV4_RETURN_IF_ERROR(engine->Settle(options));
  DSV4_RETURN_IF_ERROR(engine->Load("", options));
  return engine;
}

absl::StatusOr<std::unique_ptr<Checkpoint>> Engine::OpenCheckpoint(
    const std::string& folder, const EngineOptions& options) const {
  if (facts_.config.synthetic_layers > 0)
    return SyntheticCheckpoint(facts_.config, options.synthetic);
  return Checkpoint::Open(folder);
}

absl::Status Engine::ReadProfile(const Checkpoint& checkpoint, const EngineOptions& options) {
  if (options.expert_profile.empty()) return absl::OkStatus();
  if (options.group.rank > 0) {
    return WithArgument(InvalidArgument("option expert_profile = ", options.expert_profile,
                                        ": only rank 0 of a group has this option"),
                        "expert_profile");
  }
  profile_path_ = options.expert_profile;
  profile_checkpoint_ = checkpoint.Fingerprint();
  absl::StatusOr<ExpertProfile> profile = ReadExpertProfile(profile_path_, profile_checkpoint_);
  if (absl::IsNotFound(profile.status())) return absl::OkStatus();  // it will be written
  if (!profile.ok()) return WithArgument(profile.status(), "expert_profile");
  profile_ = *std::move(profile);
  return absl::OkStatus();
}

absl::Status Engine::Load(const std::string& folder, const EngineOptions& options) {
  DSV4_ASSIGN_OR_RETURN(std::unique_ptr<Checkpoint> checkpoint, OpenCheckpoint(folder, options));
  if (options.prove && options.backend == Backend::kCuda) {
    DSV4_RETURN_IF_ERROR(ProveOnce(DevicesOf(options), options.tuning_dir));
  }
  DSV4_RETURN_IF_ERROR(OpenDevices(options));
  DSV4_RETURN_IF_ERROR(ReadProfile(*checkpoint, options));
  DSV4_RETURN_IF_ERROR(ExpectRoom(folder, options));
  if (options.group.grouped()) {
    DSV4_RETURN_IF_ERROR(JoinGroup(checkpoint->Fingerprint(), options));
    DSV4_ASSIGN_OR_RETURN(profile_, ProfileOfLeader(joined_.get(), profile_));
  }
  DSV4_RETURN_IF_ERROR(LoadWeights(std::move(checkpoint), options));
  DSV4_RETURN_IF_ERROR(DescribeWeights(options));
  folder_ = folder;
  options_ = options;
  options_.progress = nullptr;
  return Build(options);
}

absl::StatusOr<EnginePlan> Engine::PlanOn(const std::string& folder, const EngineOptions& options,
                                          bool room) {
  Engine engine;
  DSV4_RETURN_IF_ERROR(engine.Configure(folder, options));
  DSV4_RETURN_IF_ERROR(engine.LoadTokenizer(folder));
  DSV4_ASSIGN_OR_RETURN(std::unique_ptr<Checkpoint> checkpoint,
                        engine.OpenCheckpoint(folder, options));
  DSV4_RETURN_IF_ERROR(engine.OpenDevices(options));
  DSV4_RETURN_IF_ERROR(engine.ReadProfile(*checkpoint, options));
  DSV4_ASSIGN_OR_RETURN(
      engine.weights_,
      Weights::Describe(engine.facts_.config, std::move(checkpoint), engine.Targets(options)));
  EnginePlan plan;
  DSV4_ASSIGN_OR_RETURN(plan.cache, engine.PlanMemory(options));
  if (room) DSV4_RETURN_IF_ERROR(engine.CheckRoom());
  plan.info = engine.facts_.info;
  plan.config = engine.facts_.config;
  plan.weight_format = engine.weight_format_;
  return plan;
}

// Reading the weights of a plan that does not fit would take minutes.
absl::Status Engine::ExpectRoom(const std::string& folder, const EngineOptions& options) {
  const ExpertBudgets& budgets = options.weight_budgets;
  const Device& device = *devices_.front();
  if (device.host_memory() && !budgets.limited() && budgets.host_bytes == 0) {
    return absl::OkStatus();
  }
  DSV4_ASSIGN_OR_RETURN(std::unique_ptr<Checkpoint> checkpoint, OpenCheckpoint(folder, options));
  DSV4_ASSIGN_OR_RETURN(weights_,
                        Weights::Describe(facts_.config, std::move(checkpoint), Targets(options)));
  DSV4_RETURN_IF_ERROR(PlanMemory(options).status());
  DSV4_RETURN_IF_ERROR(CheckHostRoom(options));
  return CheckRoom();
}

}  // namespace dsv4
