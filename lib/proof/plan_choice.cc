// SPDX-License-Identifier: Apache-2.0
#include "lib/proof/plan_choice.h"

#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/config/model_files.h"
#include "lib/config/shard.h"
#include "lib/proof/device_proof.h"
#include "lib/proof/list_devices.h"

namespace dsv4 {
namespace {

// How much faster a choice with more GPUs must be: they are not free for others then.
constexpr double kWorthMoreGpus = 1.1;

// Whether another candidate may do what this one cannot. Everything else is wrong with the options
// or the files, for all of them.
bool IsUnfit(const absl::Status& status) {
  const std::string argument = ArgumentOf(status);
  return IsUnsupported(status) || IsOutOfDeviceMemory(status) || IsOutOfHostMemory(status) ||
         IsDeviceLost(status) || argument == "device_weight_bytes" ||
         argument == "host_weight_bytes";
}

bool HoldsAll(const EngineInfo& info) {
  return info.residency.on_host + info.residency.on_disk == 0;
}

std::string Rate(double rate) {
  char text[32];
  std::snprintf(text, sizeof text, rate < 10 ? "%.1f" : "%.0f", rate);
  return text;
}

std::string Predicted(const EngineInfo& info) {
  return absl::StrCat("about ", Rate(info.expected_decode), " tokens a second");
}

// "1.1 GB"
std::string Gigabytes(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GB", static_cast<double>(bytes) / 1e9);
  return text;
}

// What was settled otherwise than the host may expect.
std::string Notes(const EnginePlan& plan) {
  std::string notes;
  if (plan.whole_context() > 0) {
    absl::StrAppend(&notes, "; the context has ", plan.info().context_tokens, " of the model's ",
                    plan.whole_context(), " tokens: more does not fit");
  }
  if (const int64_t reserve = plan.system_reserve(); reserve > 0) {
    absl::StrAppend(&notes, "; ", Gigabytes(reserve), " stay free for the system");
  }
  return notes;
}

}  // namespace

absl::StatusOr<EngineOptions> WithDevices(const OpenOptions& options) {
  EngineOptions settled = options;
  const auto count = static_cast<size_t>(std::max(options.device_count, 0));
  if (!options.devices.empty() || options.group.grouped()) return settled;
  if (options.backend == Backend::kCuda) {
    settled.devices =
        BestGpus(GpuKindsOf(ListDevices(options.system_root)), std::max(count, size_t{1}));
    if (!settled.devices.empty() || count <= 1) return settled;
    return WithArgument(Unsupported("option device_count = ", count,
                                    ": this machine has fewer usable GPUs of one kind"),
                        "device_count");
  }
  for (size_t part = 0; count > 1 && part < count; ++part) {
    settled.devices.push_back(static_cast<int32_t>(part));
  }
  return settled;
}

absl::StatusOr<PlanChoice> PlanChoice::Of(const std::string& folder, const OpenOptions& options) {
  PlanChoice choice(folder, options);
  if (options.prefer_gpu) DSV4_RETURN_IF_ERROR(choice.ListGpus());
  Candidate last{.name = "the CPU", .options = options, .plan = {}, .reason = {}, .kernels = {}};
  if (!options.prefer_gpu) {
    DSV4_ASSIGN_OR_RETURN(last.options, WithDevices(options));
  } else {
    last.options.backend = Backend::kCpu;
    last.options.step_limit.reset();  // of GPUs alone
    if (choice.given_exist_) last.options.devices.clear();
  }
  choice.candidates_.push_back(std::move(last));
  DSV4_RETURN_IF_ERROR(choice.PlanAll());
  return choice;
}

// Why prefer_gpu does not consider the GPU; empty: it does.
std::string PlanChoice::Unfit(const DeviceListing& gpu) const {
  constexpr int32_t kFirst = 120, kLast = 129;  // compute capabilities
  if (!gpu.reason.empty()) return gpu.reason;
  const int32_t capability = gpu.compute_capability;
  if (options_.any_gpu || (capability >= kFirst && capability <= kLast)) return "";
  return absl::StrCat("cuda:", gpu.index, " (", gpu.name, ") has compute capability ",
                      ComputeCapabilityName(capability),
                      ": only 12.x is chosen by itself, backend cuda runs others, too");
}

void PlanChoice::AddGpus(const std::string& name, std::vector<int32_t> indices) {
  Candidate candidate{.name = GpusText(name, indices),
                      .options = options_,
                      .plan = {},
                      .reason = {},
                      .kernels = {}};
  candidate.options.backend = Backend::kCuda;
  candidate.options.devices = std::move(indices);
  candidates_.push_back(std::move(candidate));
}

// The candidates with GPUs.
absl::Status PlanChoice::ListGpus() {
  DSV4_ASSIGN_OR_RETURN(const ModelFiles files, ReadModelFiles(folder_, options_.synthetic_layers));
  if (options_.numerics != Numerics::kPublished) {
    unfit_.push_back(
        absl::StrCat(NumericsName(options_.numerics), " numerics run on the reference backend"));
    return absl::OkStatus();
  }
  std::vector<DeviceListing> fit;
  std::vector<int32_t> given = options_.devices;
  if (given.empty() && options_.group.grouped()) given = {0};
  const auto is_given = [&](int32_t index) {
    return std::find(given.begin(), given.end(), index) != given.end();
  };
  const std::vector<DeviceListing> devices = ListDevices(options_.system_root);
  given_exist_ = std::all_of(given.begin(), given.end(), [&](int32_t index) {
    return std::any_of(devices.begin(), devices.end(), [&](const DeviceListing& device) {
      return device.kind == DeviceKind::kCuda && device.index == index;
    });
  });
  for (const DeviceListing& gpu : devices) {
    if (gpu.kind != DeviceKind::kCuda) continue;
    if (!given.empty() && gpu.index >= 0 && !is_given(gpu.index)) continue;
    std::string reason = Unfit(gpu);
    if (reason.empty()) {
      fit.push_back(gpu);
    } else {
      unfit_.push_back(std::move(reason));
    }
  }
  if (!given.empty()) {
    if (fit.size() == given.size()) {
      AddGpus(fit.front().name, given);
    } else if (unfit_.empty()) {
      unfit_.push_back(absl::StrCat("not all of the devices ", absl::StrJoin(given, ", "),
                                    " are GPUs of this machine"));
    }
    return absl::OkStatus();
  }
  for (const GpuKind& kind : GpuKindsOf(fit)) {
    const auto wanted = static_cast<size_t>(std::max(options_.device_count, 0));
    const size_t most = kind.integrated ? 1 : wanted > 0 ? kind.indices.size() : kind.FreeCount();
    for (size_t count = 1; count <= most; ++count) {
      if (wanted > 0 ? count == wanted : Shards::Of(files.config, static_cast<int>(count)).ok()) {
        AddGpus(kind.name, kind.Best(count));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status PlanChoice::PlanAll() {
  bool any = false;
  for (Candidate& candidate : candidates_) {
    absl::StatusOr<EnginePlan> plan = Engine::Plan(folder_, candidate.options);
    absl::Status status = plan.status();
    // A host that asks for a backend may plan what has no room.
    if (status.ok() && options_.prefer_gpu) status = plan->CheckRoom();
    if (status.ok()) {
      candidate.plan.emplace(*std::move(plan));
      any = true;
      continue;
    }
    if (!options_.prefer_gpu || (!candidate.cpu() && !IsUnfit(status))) return status;
    candidate.reason = std::string(status.message());
    refusal_ = std::move(status);
  }
  return any ? absl::OkStatus() : refusal_;
}

std::optional<size_t> PlanChoice::Best() const {
  std::optional<size_t> best;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    const Candidate& next = candidates_[i];
    if (!next.plan) continue;
    if (!best) {
      best = i;
      continue;
    }
    const Candidate& other = candidates_[*best];
    // Prompts, too, are computed faster by a GPU that has all weights.
    if (next.cpu() && HoldsAll(other.info())) continue;
    const double factor = next.cpu() || next.devices() == other.devices() ? 1
                          : next.devices() > other.devices()              ? kWorthMoreGpus
                                                                          : 1 / kWorthMoreGpus;
    if (next.info().expected_decode > factor * other.info().expected_decode) best = i;
  }
  return best;
}

// The known-answer test. A plan with the second set of kernels takes the place of the first.
absl::Status PlanChoice::Prove(Candidate* candidate) {
  std::vector<int32_t> devices = candidate->options.devices;
  if (devices.empty()) devices.push_back(0);
  DSV4_ASSIGN_OR_RETURN(const ProvenKernels proven,
                        options_.known_answers(devices, candidate->options.tuning_dir));
  if (proven.set == candidate->options.kernel_set) return absl::OkStatus();
  candidate->options.kernel_set = proven.set;
  candidate->kernels = proven.reason;
  DSV4_ASSIGN_OR_RETURN(EnginePlan plan, Engine::Plan(folder_, candidate->options));
  if (options_.prefer_gpu) DSV4_RETURN_IF_ERROR(plan.CheckRoom());
  candidate->plan.emplace(std::move(plan));
  return absl::OkStatus();
}

absl::StatusOr<EnginePlan> PlanChoice::Next() {
  for (std::optional<size_t> best; (best = Best());) {
    Candidate& candidate = candidates_[*best];
    if (options_.prove && !candidate.cpu()) {
      const absl::Status proof = Prove(&candidate);
      if (!proof.ok()) {
        chosen_ = *best;
        if (!Refuse(proof)) return WithReasons(proof);
        continue;
      }
    }
    chosen_ = *best;
    EnginePlan& plan = *candidate.plan;
    plan.mutable_info().backend_reason = Reasons(candidate);
    EnginePlan chosen = std::move(plan);
    candidate.plan.reset();
    return chosen;
  }
  return refusal_;
}

bool PlanChoice::Refuse(const absl::Status& status) {
  Candidate& candidate = candidates_[chosen_];
  candidate.plan.reset();
  candidate.reason = std::string(status.message());
  refusal_ = status;
  if (options_.prefer_gpu && IsDeviceLost(status)) {
    lost_ = true;
    Log(LogLevel::kWarning, candidate.name, ": ", status.message());
  }
  return options_.prefer_gpu && IsUnfit(status) && Best().has_value();
}

absl::Status PlanChoice::WithReasons(const absl::Status& status) const {
  if (!lost_) return status;
  std::string text(status.message());
  for (size_t i = 0; i < candidates_.size(); ++i) {
    const Candidate& other = candidates_[i];
    if (i != chosen_) absl::StrAppend(&text, "; not ", other.name, ": ", other.reason);
  }
  const std::string argument = ArgumentOf(status);
  absl::Status told(status.code(), text);
  return argument.empty() ? told : WithArgument(std::move(told), argument);
}

std::string PlanChoice::Reasons(const Candidate& chosen) const {
  std::string notes = Notes(*chosen.plan);
  if (!chosen.kernels.empty()) absl::StrAppend(&notes, "; ", chosen.kernels);
  if (!options_.prefer_gpu) return notes.empty() ? "" : notes.substr(2);
  std::string text = absl::StrCat(chosen.name, ": ", Predicted(chosen.info()));
  for (const Candidate& other : candidates_) {
    if (&other == &chosen) continue;
    absl::StrAppend(&text, "; not ", other.name, ": ",
                    other.plan ? Predicted(other.info()) : other.reason);
  }
  for (const std::string& reason : unfit_) absl::StrAppend(&text, "; ", reason);
  return text + notes;
}

}  // namespace dsv4
