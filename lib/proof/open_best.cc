// SPDX-License-Identifier: Apache-2.0
#include "lib/proof/open_best.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/config/model_files.h"
#include "lib/proof/canary.h"
#include "lib/proof/device_proof.h"

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
  return options;
}

// The options where no GPU is used. A limit of the GPU's memory is then kept by using none of it.
EngineOptions Otherwise(const OpenOptions& options) {
  EngineOptions otherwise = options;
  int64_t& limit = otherwise.weight_budgets.device_bytes;
  if (options.prefer_gpu) limit = std::min<int64_t>(limit, 0);  // a negative one is refused
  return otherwise;
}

// What another backend may do all the same.
bool IsUnfit(const absl::Status& status) {
  return IsUnsupported(status) || IsOutOfDeviceMemory(status);
}

// The plan on GPUs that fit and have room for it.
absl::StatusOr<EnginePlan> PlanOnGpus(const std::string& folder, const EngineOptions& options) {
  DSV4_RETURN_IF_ERROR(GpusFit(options));
  DSV4_ASSIGN_OR_RETURN(EnginePlan plan, Engine::Plan(folder, OnGpus(options)));
  DSV4_RETURN_IF_ERROR(plan.CheckRoom());
  return plan;
}

absl::StatusOr<std::shared_ptr<Engine>> OpenOnGpus(const std::string& folder,
                                                   const EngineOptions& options) {
  DSV4_ASSIGN_OR_RETURN(EnginePlan plan, PlanOnGpus(folder, options));
  return Engine::Open(std::move(plan), options.progress);
}

absl::StatusOr<std::shared_ptr<Engine>> OpenPreferred(const std::string& folder,
                                                      const OpenOptions& options) {
  absl::Status unfit;
  if (options.prefer_gpu) {
    absl::StatusOr<std::shared_ptr<Engine>> opened = OpenOnGpus(folder, options);
    if (opened.ok() || !IsUnfit(opened.status())) return opened;
    unfit = opened.status();
  }
  // A folder that cannot be opened is refused before the GPUs take time to prove themselves.
  DSV4_ASSIGN_OR_RETURN(EnginePlan plan, Engine::Plan(folder, Otherwise(options)));
  if (options.prove && options.backend == Backend::kCuda) {
    DSV4_RETURN_IF_ERROR(ProveOnce(DevicesOf(options), options.tuning_dir));
  }
  DSV4_ASSIGN_OR_RETURN(std::shared_ptr<Engine> engine,
                        Engine::Open(std::move(plan), options.progress));
  if (!unfit.ok()) {
    engine->set_backend_reason(std::string(unfit.message()));
    Log(LogLevel::kInfo, "backend ", BackendName(options.backend), ": ", unfit.message());
  }
  return engine;
}

// Computes the canary. Logits that differ raise an alarm.
absl::Status CheckCanary(const Canary& canary, Engine* engine) {
  engine->set_canary(CanaryState::kNotRun);
  const EngineInfo& info = engine->info();
  if (info.numerics != Numerics::kPublished) {
    Log(LogLevel::kInfo, kCanaryFile, " was not computed: it is of the published numerics");
    return absl::OkStatus();
  }
  if (info.cache_format == RowFormat::kFp8PerTensor) {
    Log(LogLevel::kInfo, kCanaryFile,
        " was not computed: it is of rows that are the published "
        "quantiser's; this engine's are ",
        RowFormatName(info.cache_format));
    return absl::OkStatus();
  }
  const absl::StatusOr<CanaryResult> result = RunCanary(*engine, canary);
  if (IsContextFull(result.status()) || IsOutOfBlocks(result.status())) {
    Log(LogLevel::kInfo, kCanaryFile, " was not computed: ", result.status().message());
    return absl::OkStatus();
  }
  DSV4_RETURN_IF_ERROR(result.status());
  if (result->distance <= canary.tolerance) {
    engine->set_canary(CanaryState::kPassed);
    return absl::OkStatus();
  }
  engine->set_canary(CanaryState::kFailed);
  engine->counters().CountAlarm(Alarm::kCanary);
  const bool other = !canary.fingerprint.empty() && canary.fingerprint != engine->fingerprint();
  Log(LogLevel::kWarning, "alarm ", AlarmName(Alarm::kCanary), ": ", result->Describe(),
      ", tolerance ", canary.tolerance,
      other ? absl::StrCat("; it was recorded with checkpoint ", canary.fingerprint,
                           ", and this is ", engine->fingerprint())
            : "");
  return absl::OkStatus();
}

// The canary that the options ask for; nullopt for none. A broken one is refused before weights are
// read.
absl::StatusOr<std::optional<Canary>> CanaryOf(const std::string& folder,
                                               const OpenOptions& options) {
  if (!options.canary) return std::nullopt;
  DSV4_ASSIGN_OR_RETURN(const ModelFiles files, ReadModelFiles(folder, options.synthetic_layers));
  if (files.config.synthetic_layers > 0) return std::nullopt;
  return ReadCanary(folder, files.config.vocab_size);
}

}  // namespace

absl::StatusOr<std::shared_ptr<Engine>> OpenBest(const std::string& folder,
                                                 const OpenOptions& options) {
  DSV4_ASSIGN_OR_RETURN(const std::optional<Canary> canary, CanaryOf(folder, options));
  DSV4_ASSIGN_OR_RETURN(std::shared_ptr<Engine> engine, OpenPreferred(folder, options));
  if (canary) DSV4_RETURN_IF_ERROR(CheckCanary(*canary, engine.get()));
  return engine;
}

absl::StatusOr<EnginePlan> PlanBest(const std::string& folder, const OpenOptions& options) {
  DSV4_RETURN_IF_ERROR(CanaryOf(folder, options).status());
  if (options.prefer_gpu) {
    absl::StatusOr<EnginePlan> plan = PlanOnGpus(folder, options);
    if (plan.ok() || !IsUnfit(plan.status())) return plan;
  }
  return Engine::Plan(folder, Otherwise(options));
}

absl::Status ServeBest(const std::string& folder, const OpenOptions& options,
                       absl::FunctionRef<bool(int64_t rows)> keep_serving) {
  const bool gpu = options.prefer_gpu && GpusFit(options).ok();
  return Engine::Serve(folder, gpu ? OnGpus(options) : EngineOptions(options), keep_serving);
}

}  // namespace dsv4
