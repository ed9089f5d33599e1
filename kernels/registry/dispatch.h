// SPDX-License-Identifier: Apache-2.0
// Chooses one kernel per operator for an engine, and launches it with the config that the device's
// tuning table has for calls of that shape. The choice is made once, when the engine opens: an
// operator that no entry supports is refused by name then, with every candidate's reason, never at
// the first request.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/registry/kernel_entry.h"
#include "kernels/registry/tuning_table.h"

namespace dsv4 {

// Observes launches: their costs against time in benchmarks, what they read and write in
// verification.
class LaunchRecorder {
 public:
  virtual ~LaunchRecorder() = default;
  // Calls `launch` once, which enqueues the kernels and need not wait for them: Device::SecondsOf
  // says how long they run. `params`: of the entry's operator.
  virtual void Record(const KernelEntry& entry, const void* params, const Cost& cost,
                      absl::FunctionRef<void()> launch) = 0;
};

// Which of a device's streams: kernels that run at the same time need workspaces of their own.
enum class StreamRole { kMain, kSide };

class Dispatch {
 public:
  // Entries of `manifests` are considered in their order; those of other backends are passed over,
  // and those without `numerics` or not for the device are refused. `tables`: of the device, at
  // most one for an entry; entries without one run their first config.
  Dispatch(absl::Span<const Manifest> manifests, Backend backend, Numerics numerics,
           DeviceTraits traits, std::vector<TuningTable> tables = {});

  // Chooses the entry of Params::kOp for calls of at most the shape of `largest` (pointers may be
  // null). Called once per operator and shape before Run; a later call with another shape only adds
  // to the requirements. Unsupported names the operator and each candidate's reason.
  template <class Params>
  absl::Status Prepare(const Params& largest, StreamRole stream = StreamRole::kMain) {
    return PrepareOp(Params::kOp, &largest, stream);
  }

  // Bytes of workspace that the largest call prepared for the stream needs.
  int64_t workspace_bytes(StreamRole stream = StreamRole::kMain) const {
    return workspace_bytes_[static_cast<size_t>(stream)];
  }

  // Runs the chosen entry. REQUIRES: Prepare succeeded with a shape at least this large for the
  // stream, and context.workspace has its workspace_bytes(). Error: a call that breaks its
  // contract.
  template <class Params>
  absl::Status Run(const LaunchContext& context, const Params& params) const {
    absl::Status status = Validate(params);
    if (!status.ok()) [[unlikely]]
      return status;
    const Choice& choice = chosen_[static_cast<size_t>(Params::kOp)];
    if (choice.entry == nullptr) [[unlikely]]
      return NotPrepared(Params::kOp);
    LaunchContext launch = context;
    launch.multiprocessors = traits_.multiprocessors;
    launch.config = choice.table == nullptr ? nullptr : &choice.table->For(DimsOf(params));
    if (recorder_ == nullptr) [[likely]] {
      choice.entry->launch(launch, &params);
    } else {
      recorder_->Record(*choice.entry, &params, CostOf(params),
                        [&] { choice.entry->launch(launch, &params); });
    }
    return absl::OkStatus();
  }

  // The chosen entry and its table; null before Prepare, and where there is none.
  const KernelEntry* chosen(Op op) const { return chosen_[static_cast<size_t>(op)].entry; }
  const TuningTable* table(Op op) const { return chosen_[static_cast<size_t>(op)].table; }

  Backend backend() const { return backend_; }
  Numerics numerics() const { return numerics_; }
  // How the backend stores activations: f32 for the reference, bf16 otherwise.
  DType activation_dtype() const {
    return backend_ == Backend::kReference ? DType::kF32 : DType::kBF16;
  }
  QuantizedRows quantized_rows() const {
    return backend_ == Backend::kCuda ? QuantizedRows::kCodes : QuantizedRows::kRoundTrip;
  }
  void set_recorder(LaunchRecorder* recorder) { recorder_ = recorder; }
  bool recording() const { return recorder_ != nullptr; }

 private:
  struct Choice {
    const KernelEntry* entry = nullptr;
    const TuningTable* table = nullptr;
  };
  absl::Status ExpectRunnable(const KernelEntry& entry, const void* largest) const;
  absl::Status PrepareOp(Op op, const void* largest, StreamRole stream);
  static absl::Status NotPrepared(Op op);

  std::vector<const KernelEntry*> candidates_;
  std::array<Choice, static_cast<size_t>(Op::kCount)> chosen_{};
  Backend backend_;
  Numerics numerics_;
  DeviceTraits traits_;
  std::vector<TuningTable> tables_;
  std::array<int64_t, 2> workspace_bytes_{};
  LaunchRecorder* recorder_ = nullptr;
};

}  // namespace dsv4
