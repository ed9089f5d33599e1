// SPDX-License-Identifier: Apache-2.0
// Chooses one kernel per operator for an engine, and launches it. The choice is made once, when the
// engine opens: an operator that no entry supports is refused by name then, with every candidate's
// reason, never at the first request.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/registry/kernel_entry.h"

namespace dsv4 {

// What a recorder learns of a launch. For benchmarks: cost against time.
class LaunchRecorder {
 public:
  virtual ~LaunchRecorder() = default;
  virtual void Launched(const KernelEntry& entry, const Cost& cost, double seconds) = 0;
};

class Dispatch {
 public:
  // Entries of `manifests` are considered in their order; those of other backends or without
  // `numerics` are passed over.
  Dispatch(absl::Span<const Manifest> manifests, Backend backend, Numerics numerics, int threads);

  // Chooses the entry of Params::kOp for calls of at most the shape of `largest` (pointers may be
  // null). Called once per operator and shape before Run; a later call with another shape only adds
  // to the requirements. Unsupported names the operator and each candidate's reason.
  template <class Params>
  absl::Status Prepare(const Params& largest) {
    return PrepareOp(Params::kOp, &largest);
  }

  // Bytes of workspace that the largest prepared call needs.
  int64_t workspace_bytes() const { return workspace_bytes_; }

  // Runs the chosen entry. REQUIRES: Prepare succeeded with a shape at least this large, and
  // context.workspace has workspace_bytes(). Error: a call that breaks its contract.
  template <class Params>
  absl::Status Run(const LaunchContext& context, const Params& params) const {
    absl::Status status = Validate(params);
    if (!status.ok()) [[unlikely]]
      return status;
    const KernelEntry* entry = chosen_[static_cast<size_t>(Params::kOp)];
    if (entry == nullptr) [[unlikely]]
      return NotPrepared(Params::kOp);
    if (recorder_ == nullptr) [[likely]] {
      entry->launch(context, &params);
    } else {
      const double seconds = LaunchTimed(*entry, context, &params);
      recorder_->Launched(*entry, CostOf(params), seconds);
    }
    return absl::OkStatus();
  }

  // The chosen entry; null before Prepare.
  const KernelEntry* chosen(Op op) const { return chosen_[static_cast<size_t>(op)]; }

  Backend backend() const { return backend_; }
  Numerics numerics() const { return numerics_; }
  // How the backend stores activations: f32 for the reference, bf16 otherwise.
  DType activation_dtype() const {
    return backend_ == Backend::kReference ? DType::kF32 : DType::kBF16;
  }
  void set_recorder(LaunchRecorder* recorder) { recorder_ = recorder; }
  bool recording() const { return recorder_ != nullptr; }

 private:
  absl::Status PrepareOp(Op op, const void* largest);
  static absl::Status NotPrepared(Op op);
  static double LaunchTimed(const KernelEntry& entry, const LaunchContext& context,
                            const void* params);

  std::vector<const KernelEntry*> candidates_;
  std::array<const KernelEntry*, static_cast<size_t>(Op::kCount)> chosen_{};
  Backend backend_;
  Numerics numerics_;
  int threads_;
  int64_t workspace_bytes_ = 0;
  LaunchRecorder* recorder_ = nullptr;
};

}  // namespace dsv4
