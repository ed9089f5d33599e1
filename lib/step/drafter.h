// SPDX-License-Identifier: Apache-2.0
// Drafts tokens for the sessions of an engine, as a part of its steps. A drafter keeps its state of
// a session in cache rows of the session, which the forward pass or the drafter's own passes fill.
// Rows at and behind a sequence's end are written again before anything reads them, so rejected
// drafts need no undoing. The timeline verifies drafts; no drafter changes a token.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lib/model/model_ranks.h"
#include "lib/step/draft_pace.h"
#include "lib/step/step_batch.h"
#include "lib/step/step_request.h"

namespace dsv4 {

class Drafter {
 public:
  // Creates a drafter of `kind` for a model that was planned for it; null for kNone.
  static std::unique_ptr<Drafter> Of(DrafterKind kind, const ModelConfig& config,
                                     ModelRanks* model);
  virtual ~Drafter() = default;

  // Called after the forward pass of `batch` was launched: keeps what later steps need of its rows.
  virtual absl::Status AfterForward(const StepBatch& batch) {
    static_cast<void>(batch);
    return absl::OkStatus();
  }
  // Called after the step's tokens are chosen and before they are committed. Fills the drafter's
  // rows of these tokens, and gives drafts to the timelines that ask for some. A drafter that knows
  // its confidence gives only as many as save time. *device_idle: the device has finished the step.
  virtual absl::Status Draft(absl::Span<StepRequest* const> requests, DraftPace* pace,
                             bool* device_idle) = 0;
};

// Whether all drafts that the timelines ask for can be chosen on the model's device, one after
// another without the host.
bool ChoosesOnDevice(const ModelRanks& model, absl::Span<StepRequest* const> requests);

// Each kind's, for Of.
std::unique_ptr<Drafter> MakeMtpDrafter(ModelRanks* model);
std::unique_ptr<Drafter> MakeDsparkDrafter(ModelRanks* model, const DsparkConfig& config,
                                           int64_t context);
std::unique_ptr<Drafter> MakeNgramDrafter();

}  // namespace dsv4
