// SPDX-License-Identifier: Apache-2.0
// Passes of few rows as graphs of the device, one for each number of rows that steps are padded to,
// each with a head and without one, and chains of draft passes. A graph copies its inputs from
// pinned memory, so that a pass is one launch. Kernels of larger passes are only loaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/device/device.h"
#include "lib/model/draft_passes.h"
#include "lib/model/running_pass.h"

namespace dsv4 {

// The number of rows that a recorded step of more than `rows` >= 0 rows is padded to. Sizes are
// powers of two and the middles between them, above 32 also the quarters. Padding rows cost little
// up to 16 rows, the height of one MMA. Above that they cost as much as other rows in operators
// that are bound by arithmetic, except the experts: padding rows choose none.
constexpr int32_t NextStepSize(int32_t rows) {
  if (rows < 4) return rows + 1;
  int32_t power = 4;
  while (power <= rows / 2) power *= 2;
  const int32_t apart = power < 32 ? power / 2 : power / 4;
  return rows / apart * apart + apart;
}

class RecordedPasses {
 public:
  // Runs the pass that was set, kernel by kernel: its layers; and its head for some rows, with the
  // answers to the questions about them.
  struct Runner {
    std::function<absl::Status(PassKind)> layers;
    std::function<absl::Status(PassKind, int32_t rows)> head;
  };
  // A pass without its head and with it.
  struct Pass {
    std::unique_ptr<Graph> alone, with_head;
  };
  // What is recorded for steps that are padded to `shape`.
  struct Step {
    StepUpload::Shape shape;
    Pass main, draft;                 // draft: if planned for
    StepUpload::Shape chain_shape{};  // of the first pass of a chain
    std::unique_ptr<Graph> chain;     // if planned for
  };

  // `drafts` may be null. The arguments must outlive the object.
  RecordedPasses(RunningPass* pass, DraftPasses* drafts, Runner runner);

  // Whether steps of few rows are recorded.
  bool records() const { return pass_.parts.graphs && !pass_.parts.experts->reads_disk(); }
  // Limits of the steps that are recorded, where records(), if their graphs may run for as long as
  // they need.
  StepLimits limits() const;
  // The most rows of a recorded step; 0: none. Where the driver ends what runs for too long, fewer
  // than the limit if a graph would read experts from host memory for longer.
  int32_t recorded_rows() const;
  // Bytes of the graphs' inputs; places them at `memory` unless it is null.
  absl::StatusOr<int64_t> PlaceInputs(std::byte* memory);
  // Records the steps up to limits(), and loads the kernels of larger ones. Not before everything
  // else was placed. Again: in place of what was recorded.
  absl::Status Record();

  // The recorded step that fits, by its shape or that of its chain; null: none, or launches are
  // observed.
  const Step* Find(const StepRows& step, StepUpload::Shape Step::*shape = &Step::shape) const;
  absl::Status Launch(PassKind kind, const Step& step, const LogitRequests& head,
                      const PassInputs& inputs);
  absl::Status LaunchChain(const Step& step, const DraftChain& chain);
  // Waits for the device.
  absl::Status Synchronize();
  // Another rank is observed: this one must launch kernel by kernel, too.
  void set_watched(bool watched) { watched_ = watched; }

 private:
  // The inputs of a recorded pass, which it copies from pinned memory.
  struct Inputs {
    StepUpload upload;
    bool launched = false;  // the pass was launched and may not have copied them yet
  };

  StepUpload::Shape ShapeOf(int32_t rows) const;
  // Prepares an all-padding pass for graph capture. Its outputs are never read.
  absl::Status SetPadding(PassKind kind, StepUpload* upload, const StepUpload::Shape& shape);
  // Loads the kernels of passes of that shape, with a head, by recording and dropping them.
  absl::Status LoadKernels(const StepUpload::Shape& shape);
  absl::Status RecordPass(PassKind kind, const StepUpload::Shape& shape, Pass* recorded);
  absl::Status RecordChain(Step* step);
  Inputs& InputsOf(PassKind kind) { return inputs_[kind == PassKind::kMain ? 0 : 1]; }
  Inputs& ChainInputs(size_t pass) {
    return pass == 0 ? InputsOf(PassKind::kDraft) : chain_inputs_[pass - 1];
  }
  size_t chain_passes() const { return chains_ ? drafts_->chain_passes() : 0; }

  RunningPass& pass_;
  DraftPasses* const drafts_;
  const bool chains_;
  const Runner runner_;
  Inputs inputs_[2];
  std::vector<Inputs> chain_inputs_;  // of the passes of a chain after its first
  std::vector<Step> steps_;           // ascending
  bool watched_ = false;
};

}  // namespace dsv4
