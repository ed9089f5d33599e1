// SPDX-License-Identifier: Apache-2.0
// What drafts for the sessions of an engine, as a part of its steps. A drafter keeps what it needs
// of a session in rows of the session's cache, which the forward pass or passes of its own fill;
// what it writes at and behind a sequence's end is written again before anything sees it, so that
// drafts which are not accepted need no undoing. A draft is what may follow; whether it does is the
// timeline's to say, and no drafter changes a token.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lib/model/model_ranks.h"
#include "lib/runtime/draft_pace.h"
#include "lib/runtime/step_batch.h"

namespace dsv4 {

class Timeline;

// One timeline's part in a step.
struct StepItem {
  Timeline* timeline = nullptr;
  int64_t rows = 0;     // pending ones to compute; 1 when a token is to be chosen
  bool choose = false;  // the tokens after them, and drafts
  absl::Status status{};

  // The runner's.
  bool in_step = false;
  int32_t first_row = 0, row_count = 0;  // drafts included
  int32_t logits_row = -1;               // of the first row whose logits were asked for
  // The drafter's.
  int32_t draft_row = -1;  // of its pass: what the next draft follows
  bool drafting = false;
  DraftPace::Drafts drafts{};
};

class Drafter {
 public:
  // Calls `work`, which throws nothing, for every item it is given, on the thread that the item's
  // callbacks belong to.
  using Work = absl::FunctionRef<void(StepItem&)>;
  using ForEach = absl::FunctionRef<void(Work work)>;

  // That of `kind`, for a model that was planned for it; null for kNone.
  static std::unique_ptr<Drafter> Of(DrafterKind kind, const ModelConfig& config,
                                     ModelRanks* model);
  virtual ~Drafter() = default;

  // The forward pass of `batch` was launched: takes what later steps need of its rows.
  virtual absl::Status AfterForward(const StepBatch& batch) {
    static_cast<void>(batch);
    return absl::OkStatus();
  }
  // The step's tokens are chosen, nothing is committed: fills the rows that it keeps of them, and
  // gives each timeline that wants drafts some; a drafter that knows how sure it is, as many as
  // pay. *finished: whether the device has nothing left to do of the step.
  virtual absl::Status Draft(absl::Span<StepItem> items, ForEach for_each, DraftPace* pace,
                             bool* finished) = 0;
};

// Whether all drafts that the items want can be chosen on the model's device, one after another
// without the host.
bool ChoosesOnDevice(const ModelRanks& model, absl::Span<const StepItem> items);

// Each kind's, for Of.
std::unique_ptr<Drafter> MakeMtpDrafter(ModelRanks* model);
std::unique_ptr<Drafter> MakeDsparkDrafter(ModelRanks* model, const DsparkConfig& config,
                                           int64_t context);
std::unique_ptr<Drafter> MakeNgramDrafter();

}  // namespace dsv4
