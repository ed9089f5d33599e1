// SPDX-License-Identifier: Apache-2.0
// The recorded passes of a Model: steps of few rows as graphs, one for each number of rows that
// steps are padded to, and their launches.
#include <algorithm>
#include <utility>

#include "lib/base/checked_math.h"
#include "lib/base/status_macros.h"
#include "lib/model/model.h"
#include "lib/model/step_sizes.h"

namespace dsv4 {

// From here on a pass chooses nearly all experts of a layer, when all are chosen alike, and is not
// recorded.
int32_t Model::StreamRows() const {
  constexpr int64_t kChoices = 2;  // of each expert: 1 in e^2 is not chosen
  const auto rows = static_cast<int32_t>(
      CeilDiv(kChoices * parts_.config->n_routed_experts, parts_.config->num_experts_per_tok));
  return Records() ? std::max(rows, RecordedLimits().rows + 1) : rows;
}

StepLimits Model::RecordedLimits() const {
  constexpr int32_t kShortPrompt = 64;
  StepLimits limits = limits_;
  limits.rows = std::min(limits.rows, std::max(kShortPrompt, limits.decode_rows));
  limits.sequences = std::min(limits.sequences, limits.rows);
  limits.logit_rows = std::min(limits.logit_rows, limits.rows);
  return limits;
}

StepUpload::Shape Model::ShapeOf(int32_t rows) const {
  return {rows, std::min(rows, limits_.sequences), std::min(rows, limits_.logit_rows)};
}

absl::Status Model::RecordSteps() {
  if (parts_.device->host_memory()) return absl::OkStatus();
  const int32_t recorded_rows = Records() ? RecordedLimits().rows : 0;
  for (int32_t rows = 0; rows < limits_.rows;) {
    const int32_t largest = rows < recorded_rows ? recorded_rows : limits_.rows;
    rows = std::min(NextStepSize(rows), largest);
    if (rows > recorded_rows) {
      DSV4_RETURN_IF_ERROR(LoadKernels(ShapeOf(rows)));
      continue;
    }
    RecordedStep step;
    step.shape = ShapeOf(rows);
    DSV4_RETURN_IF_ERROR(RecordPass(Pass::kMain, step.shape, &step.main));
    if (step.main.alone == nullptr) return absl::OkStatus();
    if (drafter_ != nullptr)
      DSV4_RETURN_IF_ERROR(RecordPass(Pass::kDraft, step.shape, &step.draft));
    if (chains()) DSV4_RETURN_IF_ERROR(RecordChain(&step));
    recorded_.push_back(std::move(step));
  }
  return parts_.device->Synchronize();
}

absl::Status Model::SetPadding(Pass pass, StepUpload* upload, const StepUpload::Shape& shape) {
  PassInputs padding;
  if (pass == Pass::kDraft) SetSources({}, shape.rows, &padding);
  return SetPass(upload, shape, {}, padding);
}

// CUDA loads a kernel when it is first used, for which it allocates and may wait for the device.
absl::Status Model::LoadKernels(const StepUpload::Shape& shape) {
  for (const Pass pass : {Pass::kMain, Pass::kDraft}) {
    if (pass == Pass::kDraft && drafter_ == nullptr) continue;
    DSV4_RETURN_IF_ERROR(SetPadding(pass, &upload_, shape));
    const auto run = [&]() -> absl::Status {
      DSV4_RETURN_IF_ERROR(RunPass(pass));
      return RunHeadOf(pass, shape.head_rows, true);
    };
    context_.recording = true;
    const absl::Status recorded = parts_.device->Record(run).status();
    context_.recording = false;
    DSV4_RETURN_IF_ERROR(recorded);
  }
  return absl::OkStatus();
}

absl::Status Model::RecordPass(Pass pass, const StepUpload::Shape& shape, RecordedPass* recorded) {
  StepUpload* const upload = &FetchedOf(pass).upload;
  DSV4_RETURN_IF_ERROR(SetPadding(pass, upload, shape));
  const auto run = [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(context_.Run(upload->Fetch(shape)));
    return RunPass(pass);
  };
  DSV4_ASSIGN_OR_RETURN(recorded->alone, parts_.device->Record(run));
  DSV4_ASSIGN_OR_RETURN(recorded->with_head, parts_.device->Record([&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(run());
    return RunHeadOf(pass, shape.head_rows, true);
  }));
  return absl::OkStatus();
}

absl::Status Model::RecordChain(RecordedStep* step) {
  const StepUpload::Shape first = step->chain_shape = ChainShape(step->shape);
  for (size_t pass = 0; pass < ChainPasses(); ++pass) {
    DSV4_RETURN_IF_ERROR(
        SetChainPass({}, pass, &ChainFetched(pass).upload, ChainShape(first, pass)));
  }
  DSV4_ASSIGN_OR_RETURN(step->chain, parts_.device->Record([&]() -> absl::Status {
    for (size_t pass = 0; pass < ChainPasses(); ++pass) {
      const StepUpload::Shape shape = ChainShape(first, pass);
      DSV4_RETURN_IF_ERROR(context_.Run(ChainFetched(pass).upload.Fetch(shape)));
      DSV4_RETURN_IF_ERROR(RunChainPass(pass, shape.head_rows));
    }
    return absl::OkStatus();
  }));
  return absl::OkStatus();
}

absl::Status Model::Replay(Pass pass, const RecordedStep& step, const HeadRows& head,
                           const PassInputs& inputs) {
  FetchedInputs& fetched = FetchedOf(pass);
  if (fetched.launched) DSV4_RETURN_IF_ERROR(Synchronize());
  if (parts_.communicator != nullptr) DSV4_RETURN_IF_ERROR(parts_.communicator->Check());
  DSV4_RETURN_IF_ERROR(SetPass(&fetched.upload, step.shape, head, inputs));
  const RecordedPass& recorded = pass == Pass::kMain ? step.main : step.draft;
  (head.rows.empty() ? recorded.alone : recorded.with_head)->Launch();
  fetched.launched = true;
  logits_.Begin(head);
  return absl::OkStatus();
}

const Model::RecordedStep* Model::Recorded(const StepRows& step,
                                           StepUpload::Shape RecordedStep::*shape) const {
  if (step.rows < 1 || context_.tap != nullptr || watched_ || parts_.dispatch->recording()) {
    return nullptr;
  }
  const auto recorded =
      std::find_if(recorded_.begin(), recorded_.end(), [&](const RecordedStep& candidate) {
        return (candidate.*shape).rows >= step.rows &&
               (candidate.*shape).sequences >= step.sequence_count;
      });
  return recorded != recorded_.end() ? &*recorded : nullptr;
}

}  // namespace dsv4
