// SPDX-License-Identifier: Apache-2.0
#include "lib/model/recorded_passes.h"

#include <algorithm>
#include <utility>

#include "lib/base/status_macros.h"

namespace dsv4 {

RecordedPasses::RecordedPasses(RunningPass* pass, DraftPasses* drafts, Runner runner)
    : pass_(*pass),
      drafts_(drafts),
      chains_(drafts != nullptr && drafts->chains()),
      runner_(std::move(runner)),
      chain_inputs_(chains_ ? chain_passes() - 1 : 0) {}

StepLimits RecordedPasses::limits() const {
  constexpr int32_t kShortPrompt = 64;
  StepLimits limits = pass_.limits;
  limits.rows = std::min(limits.rows, std::max(kShortPrompt, limits.decode_rows));
  limits.sequences = std::min(limits.sequences, limits.rows);
  limits.logit_rows = std::min(limits.logit_rows, limits.rows);
  return limits;
}

int32_t RecordedPasses::recorded_rows() const {
  // Windows ends what runs for two seconds, other systems after some more.
  constexpr double kLongestReads = 0.5;
  if (!records()) return 0;
  const int32_t most = limits().rows;
  // Ranks record alike.
  if (!pass_.parts.device->limits_kernels() || pass_.parts.shards->ranks > 1) return most;
  int32_t rows = 0;
  while (rows < most) {
    const int32_t next = std::min(NextStepSize(rows), most);
    if (pass_.parts.experts->LongestHostReads(next) > kLongestReads) break;
    rows = next;
  }
  return rows;
}

absl::StatusOr<int64_t> RecordedPasses::PlaceInputs(std::byte* memory) {
  if (!records()) return 0;
  Device* const device = pass_.parts.device;
  const StepLimits recorded = limits();
  StepLimits later = recorded;  // passes of a chain
  later.rows = recorded.sequences;
  later.drafts = 0;
  int64_t bytes = 0;
  const auto place = [&](Inputs* inputs, const StepLimits& limits) {
    std::byte* const to = memory == nullptr ? nullptr : memory + bytes;
    bytes += StepUpload::DeviceBytes(*device, limits);
    return to == nullptr ? absl::OkStatus()
                         : inputs->upload.PlaceFetched(device, limits, &pass_.masks, to);
  };
  for (Inputs& inputs : chain_inputs_) DSV4_RETURN_IF_ERROR(place(&inputs, later));
  DSV4_RETURN_IF_ERROR(place(&InputsOf(PassKind::kMain), recorded));
  if (drafts_ != nullptr) DSV4_RETURN_IF_ERROR(place(&InputsOf(PassKind::kDraft), recorded));
  return bytes;
}

StepUpload::Shape RecordedPasses::ShapeOf(int32_t rows) const {
  return {rows, std::min(rows, pass_.limits.sequences), std::min(rows, pass_.limits.logit_rows)};
}

absl::Status RecordedPasses::Record() {
  if (pass_.parts.device->host_memory()) return absl::OkStatus();
  steps_.clear();
  const int32_t recorded_rows = this->recorded_rows();
  for (int32_t rows = 0; rows < pass_.limits.rows;) {
    const int32_t largest = rows < recorded_rows ? recorded_rows : pass_.limits.rows;
    rows = std::min(NextStepSize(rows), largest);
    if (rows > recorded_rows) {
      DSV4_RETURN_IF_ERROR(LoadKernels(ShapeOf(rows)));
      continue;
    }
    Step step;
    step.shape = ShapeOf(rows);
    DSV4_RETURN_IF_ERROR(RecordPass(PassKind::kMain, step.shape, &step.main));
    if (step.main.alone == nullptr) return absl::OkStatus();
    if (drafts_ != nullptr) {
      DSV4_RETURN_IF_ERROR(RecordPass(PassKind::kDraft, step.shape, &step.draft));
    }
    if (chains_) DSV4_RETURN_IF_ERROR(RecordChain(&step));
    steps_.push_back(std::move(step));
  }
  return pass_.parts.device->Synchronize();
}

absl::Status RecordedPasses::SetPadding(PassKind kind, StepUpload* upload,
                                        const StepUpload::Shape& shape) {
  PassInputs padding;
  if (kind == PassKind::kDraft) drafts_->SetSources({}, shape.rows, &padding);
  return pass_.Set(upload, shape, {}, padding);
}

// CUDA loads a kernel when it is first used, for which it allocates and may wait for the device.
absl::Status RecordedPasses::LoadKernels(const StepUpload::Shape& shape) {
  for (const PassKind kind : {PassKind::kMain, PassKind::kDraft}) {
    if (kind == PassKind::kDraft && drafts_ == nullptr) continue;
    DSV4_RETURN_IF_ERROR(SetPadding(kind, &pass_.upload, shape));
    pass_.context.loading = true;
    const absl::Status recorded = pass_.parts.device
                                      ->Record([&]() -> absl::Status {
                                        DSV4_RETURN_IF_ERROR(runner_.layers(kind));
                                        return runner_.head(kind, shape.head_rows);
                                      })
                                      .status();
    pass_.context.loading = false;
    DSV4_RETURN_IF_ERROR(recorded);
  }
  return absl::OkStatus();
}

absl::Status RecordedPasses::RecordPass(PassKind kind, const StepUpload::Shape& shape,
                                        Pass* recorded) {
  StepUpload* const upload = &InputsOf(kind).upload;
  DSV4_RETURN_IF_ERROR(SetPadding(kind, upload, shape));
  Dispatch* const dispatch = pass_.parts.dispatch;
  const auto run = [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(pass_.context.Run(upload->Fetch(shape)));
    const std::unique_ptr<LaunchProgram> program =
        shape.rows == 1 ? dispatch->MakeProgram() : nullptr;
    dispatch->set_program(program.get());
    const absl::Status status = runner_.layers(kind);
    dispatch->Flush();
    dispatch->set_program(nullptr);
    return status;
  };
  DSV4_ASSIGN_OR_RETURN(recorded->alone, pass_.parts.device->Record(run));
  DSV4_ASSIGN_OR_RETURN(recorded->with_head, pass_.parts.device->Record([&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(run());
    return runner_.head(kind, shape.head_rows);
  }));
  return absl::OkStatus();
}

absl::Status RecordedPasses::RecordChain(Step* step) {
  const StepUpload::Shape first = step->chain_shape = drafts_->ChainShape(step->shape);
  for (size_t pass = 0; pass < chain_passes(); ++pass) {
    DSV4_RETURN_IF_ERROR(drafts_->SetChainPass({}, pass, &ChainInputs(pass).upload,
                                               DraftPasses::ChainShape(first, pass)));
  }
  DSV4_ASSIGN_OR_RETURN(step->chain, pass_.parts.device->Record([&]() -> absl::Status {
    for (size_t pass = 0; pass < chain_passes(); ++pass) {
      const StepUpload::Shape shape = DraftPasses::ChainShape(first, pass);
      DSV4_RETURN_IF_ERROR(pass_.context.Run(ChainInputs(pass).upload.Fetch(shape)));
      DSV4_RETURN_IF_ERROR(drafts_->RunChainPass(pass, shape.head_rows));
    }
    return absl::OkStatus();
  }));
  return absl::OkStatus();
}

absl::Status RecordedPasses::Launch(PassKind kind, const Step& step, const LogitRequests& head,
                                    const PassInputs& inputs) {
  Inputs& own = InputsOf(kind);
  if (own.launched) DSV4_RETURN_IF_ERROR(Synchronize());
  if (pass_.parts.communicator != nullptr) {
    DSV4_RETURN_IF_ERROR(pass_.parts.communicator->Check());
  }
  DSV4_RETURN_IF_ERROR(pass_.Set(&own.upload, step.shape, head, inputs));
  const Pass& recorded = kind == PassKind::kMain ? step.main : step.draft;
  (head.rows.empty() ? recorded.alone : recorded.with_head)->Launch();
  own.launched = true;
  pass_.logits.Begin(head);
  return absl::OkStatus();
}

absl::Status RecordedPasses::LaunchChain(const Step& step, const DraftChain& chain) {
  for (size_t pass = 0; pass < chain_passes(); ++pass) {
    if (ChainInputs(pass).launched) DSV4_RETURN_IF_ERROR(Synchronize());
  }
  if (pass_.parts.communicator != nullptr) {
    DSV4_RETURN_IF_ERROR(pass_.parts.communicator->Check());
  }
  for (size_t pass = 0; pass < chain_passes(); ++pass) {
    DSV4_RETURN_IF_ERROR(drafts_->SetChainPass(chain, pass, &ChainInputs(pass).upload,
                                               DraftPasses::ChainShape(step.chain_shape, pass)));
    ChainInputs(pass).launched = true;
  }
  step.chain->Launch();
  return absl::OkStatus();
}

const RecordedPasses::Step* RecordedPasses::Find(const StepRows& step,
                                                 StepUpload::Shape Step::*shape) const {
  if (step.rows < 1 || pass_.context.tap != nullptr || watched_ ||
      pass_.parts.dispatch->recording()) {
    return nullptr;
  }
  const auto recorded = std::find_if(steps_.begin(), steps_.end(), [&](const Step& candidate) {
    return (candidate.*shape).rows >= step.rows &&
           (candidate.*shape).sequences >= step.sequence_count;
  });
  return recorded != steps_.end() ? &*recorded : nullptr;
}

absl::Status RecordedPasses::Synchronize() {
  DSV4_RETURN_IF_ERROR(pass_.AwaitExchanges());
  DSV4_RETURN_IF_ERROR(pass_.parts.device->Synchronize());
  for (Inputs& inputs : inputs_) inputs.launched = false;
  for (Inputs& inputs : chain_inputs_) inputs.launched = false;
  return absl::OkStatus();
}

}  // namespace dsv4
