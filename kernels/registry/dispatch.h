// SPDX-License-Identifier: Apache-2.0
// Chooses one kernel per operator for an engine, and launches it with the config that the device's
// tuning table has for calls of that shape. The choice is made once, when the engine opens. An
// operator without a suitable entry fails then, with the reason of every candidate, and not at the
// first request.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/registry/kernel_entry.h"
#include "kernels/registry/launch_program.h"
#include "kernels/registry/tuning_table.h"
#include "lib/device/watched_thread.h"

namespace dsv4 {

// Observes launches. Benchmarks compare their costs with their time; verification looks at their
// inputs and outputs.
class LaunchRecorder {
 public:
  virtual ~LaunchRecorder() = default;
  // Calls `launch` exactly once, unless results do not matter. It enqueues the kernels and may
  // return before they run; Device::SecondsOf measures their time. `params`: of the entry's
  // operator.
  virtual void Record(const KernelEntry& entry, const void* params, const Cost& cost,
                      absl::FunctionRef<void()> launch) = 0;
  // Whether launches may run concurrently with others, as they do without a recorder.
  virtual bool overlaps() const { return false; }
};

// One of a device's streams. Kernels that run concurrently need workspaces of their own.
enum class StreamRole { kMain, kSide };

class Dispatch {
 public:
  // - `manifests`: their entries are candidates in this order. Entries of other backends are
  //   skipped; entries without `numerics` or for other devices are refused.
  // - `tables`: of the device, at most one for an entry. Entries without a table run their first
  //   config.
  Dispatch(absl::Span<const Manifest> manifests, Backend backend, Numerics numerics,
           DeviceTraits traits, std::vector<TuningTable> tables = {});

  // Chooses the entry of Params::kOp for calls of at most the shape of `largest` (pointers may be
  // null). Called before Run, once per operator and shape. Another shape adds to the requirements.
  // Errors: Unsupported, naming the operator and the reason of each candidate.
  template <class Params>
  absl::Status Prepare(const Params& largest, StreamRole stream = StreamRole::kMain) {
    return PrepareOp(Params::kOp, &largest, stream);
  }

  // Bytes of workspace that the largest call prepared for the stream needs.
  int64_t workspace_bytes(StreamRole stream = StreamRole::kMain) const {
    return workspace_bytes_[static_cast<size_t>(stream)];
  }

  // Runs the chosen entry. REQUIRES: Prepare succeeded for the stream with a shape at least this
  // large, and context.workspace has workspace_bytes(). Errors: Validate's.
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
      const DriverCall in_driver;  // on a GPU
      if (program_ != nullptr) {
        if (program_->Take(*choice.entry, launch, &params)) return absl::OkStatus();
        program_->Launch();
      }
      choice.entry->launch(launch, &params);
    } else {
      recorder_->Record(*choice.entry, &params, CostOf(params),
                        [&] { choice.entry->launch(launch, &params); });
    }
    return absl::OkStatus();
  }

  // From here on Run leaves it to `program` which launches are made at once; null: all are. The
  // program must be flushed before anything else is enqueued than by Run, and at the end.
  void set_program(LaunchProgram* program) { program_ = program; }
  void Flush() const {
    const DriverCall in_driver;
    if (program_ != nullptr) program_->Launch();
  }
  // A program of the backend's; null: it has none.
  std::unique_ptr<LaunchProgram> MakeProgram() const {
    return make_program_ == nullptr ? nullptr : make_program_();
  }

  // The chosen entry and its table; null before Prepare and if there is none.
  const KernelEntry* chosen(Op op) const { return chosen_[static_cast<size_t>(op)].entry; }
  const TuningTable* table(Op op) const { return chosen_[static_cast<size_t>(op)].table; }

  Backend backend() const { return backend_; }
  Numerics numerics() const { return numerics_; }
  // How the backend stores rows of activations.
  const HostRows& rows() const { return rows_; }
  void set_recorder(LaunchRecorder* recorder) { recorder_ = recorder; }
  bool recording() const { return recorder_ != nullptr; }
  // Whether each launch must follow the one before it.
  bool in_order() const { return recorder_ != nullptr && !recorder_->overlaps(); }

 private:
  struct Choice {
    const KernelEntry* entry = nullptr;
    const TuningTable* table = nullptr;
  };
  absl::Status ExpectRunnable(const KernelEntry& entry, const void* largest) const;
  absl::Status PrepareOp(Op op, const void* largest, StreamRole stream);
  static absl::Status NotPrepared(Op op);

  std::vector<const KernelEntry*> candidates_;
  HostRows rows_;
  std::array<Choice, static_cast<size_t>(Op::kCount)> chosen_{};
  Backend backend_;
  Numerics numerics_;
  DeviceTraits traits_;
  std::vector<TuningTable> tables_;
  std::array<int64_t, 2> workspace_bytes_{};
  LaunchRecorder* recorder_ = nullptr;
  LaunchProgram* program_ = nullptr;
  std::unique_ptr<LaunchProgram> (*make_program_)() = nullptr;
};

}  // namespace dsv4
