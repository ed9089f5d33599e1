// SPDX-License-Identifier: Apache-2.0
#include "lib/proof/open_best.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/config/model_files.h"
#include "lib/proof/canary.h"
#include "lib/proof/plan_choice.h"

namespace dsv4 {
namespace {

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

absl::StatusOr<std::shared_ptr<Engine>> OpenChecked(EnginePlan plan, const OpenOptions& options,
                                                    const std::optional<Canary>& canary) {
  DSV4_ASSIGN_OR_RETURN(std::shared_ptr<Engine> engine,
                        Engine::Open(std::move(plan), options.progress));
  if (canary) DSV4_RETURN_IF_ERROR(CheckCanary(*canary, engine.get()));
  return engine;
}

absl::StatusOr<std::shared_ptr<Engine>> OpenChosen(const std::string& folder,
                                                   const OpenOptions& options,
                                                   const std::optional<Canary>& canary) {
  DSV4_ASSIGN_OR_RETURN(PlanChoice choice, PlanChoice::Of(folder, options));
  for (;;) {
    DSV4_ASSIGN_OR_RETURN(EnginePlan plan, choice.Next());
    if (!plan.info().backend_reason.empty()) {
      Log(LogLevel::kInfo, "chosen: ", plan.info().backend_reason);
    }
    absl::StatusOr<std::shared_ptr<Engine>> engine = OpenChecked(std::move(plan), options, canary);
    if (engine.ok()) return engine;
    if (!choice.Refuse(engine.status())) return choice.WithReasons(engine.status());
  }
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
  return OpenChosen(folder, options, canary);
}

absl::StatusOr<EnginePlan> PlanBest(const std::string& folder, const OpenOptions& options) {
  DSV4_RETURN_IF_ERROR(CanaryOf(folder, options).status());
  OpenOptions plan = options;
  plan.prove = options.prove && options.prefer_gpu;
  DSV4_ASSIGN_OR_RETURN(PlanChoice choice, PlanChoice::Of(folder, plan));
  return choice.Next();
}

absl::Status ServeBest(const std::string& folder, const OpenOptions& options,
                       absl::FunctionRef<bool(int64_t rows)> keep_serving) {
  EngineOptions serve = options;
  if (options.prefer_gpu && options.group.rank > 0) {
    DSV4_ASSIGN_OR_RETURN(PlanChoice choice, PlanChoice::Of(folder, options));
    DSV4_ASSIGN_OR_RETURN(const EnginePlan plan, choice.Next());
    serve.backend = plan.info().backend;
    serve.kernel_set = plan.settings().options.kernel_set;
  }
  return Engine::Serve(folder, serve, keep_serving);
}

}  // namespace dsv4
