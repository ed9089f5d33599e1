// SPDX-License-Identifier: Apache-2.0
// Chooses what an engine runs on: plans every way to run the model on this machine, and takes the
// one with the shortest predicted time of a token (lib/engine/expectation.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/device/device.h"
#include "lib/engine/engine.h"
#include "lib/proof/device_proof.h"
#include "lib/proof/gpu_kinds.h"

namespace dsv4 {

struct OpenOptions : EngineOptions {
  // Chooses the backend, and the devices if `devices` is empty, in place of `backend`: one GPU,
  // several GPUs of one kind, or the CPU.
  bool prefer_gpu = false;
  // If `devices` is empty: so many devices, the best ones. 0: as many as are best if prefer_gpu
  // is set, else one.
  int32_t device_count = 0;
  // Run the known-answer test on GPUs before weights are loaded (ProveOnce). A GPU that fails it is
  // Unsupported.
  bool prove = false;
  // The known-answer test; tests of what follows it give another one.
  std::function<absl::StatusOr<ProvenKernels>(absl::Span<const int32_t> devices,
                                              const std::string& tuning_dir)>
      known_answers = ProveOnce;
  // Compute the folder's canary after loading. EngineInfo::canary has the result.
  bool canary = false;
  // For tests: prefer_gpu takes GPUs that are not SM12x, too.
  bool any_gpu = false;
};

class PlanChoice {
 public:
  // Plans all candidates: without prefer_gpu the one of the options. Errors: those of Engine::Plan,
  // if no candidate can be planned.
  static absl::StatusOr<PlanChoice> Of(const std::string& folder, const OpenOptions& options);

  // The best plan that is left, whose GPUs have proven themselves. EngineInfo::backend_reason says
  // what was chosen and why the others were not. Errors: of the candidate that failed last.
  absl::StatusOr<EnginePlan> Next();
  // Whether another candidate may be opened in place of the last one of Next, which failed.
  bool Refuse(const absl::Status& status);
  // The error of the last one, if a GPU was lost with the reasons against all others.
  absl::Status WithReasons(const absl::Status& status) const;

 private:
  struct Candidate {
    std::string name;
    EngineOptions options;
    std::optional<EnginePlan> plan;  // null: refused
    std::string reason;              // why it was not chosen
    std::string kernels;             // why it runs the second set of kernels
    bool cpu() const { return options.backend != Backend::kCuda; }
    size_t devices() const { return std::max<size_t>(options.devices.size(), 1); }
    const EngineInfo& info() const { return plan->info(); }
  };

  PlanChoice(const std::string& folder, const OpenOptions& options)
      : folder_(folder), options_(options) {}
  absl::Status PlanAll();
  absl::Status ListGpus();
  absl::Status Prove(Candidate* candidate);
  void AddGpus(const std::string& name, std::vector<int32_t> indices);
  std::string Unfit(const DeviceListing& gpu) const;
  std::optional<size_t> Best() const;
  std::string Reasons(const Candidate& chosen) const;

  std::string folder_;
  OpenOptions options_;
  std::vector<Candidate> candidates_;  // with more and more GPUs, then the CPU
  bool given_exist_ = false;           // all devices of the options are GPUs of this machine
  std::vector<std::string> unfit_;     // of GPUs that are no candidates
  size_t chosen_ = 0;                  // by Next
  bool lost_ = false;                  // a candidate, by a lost device
  absl::Status refusal_;               // of the candidate that failed last
};

// The devices of options that do not prefer a GPU: the best ones, if they name none.
// Unsupported, of device_count, if there are not so many GPUs of one kind.
absl::StatusOr<EngineOptions> WithDevices(const OpenOptions& options);

}  // namespace dsv4
