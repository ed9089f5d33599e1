// SPDX-License-Identifier: Apache-2.0
// One step of several sessions: their rows through one forward pass, the choice of tokens, the MTP
// passes, and the commit. Who takes part is the scheduler's. A timeline that fails or is cancelled
// is as before the step, and the others do not notice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lib/kv/kv_cache.h"
#include "lib/model/model_ranks.h"
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
  int32_t draft_row = -1;                // of the MTP pass: what the next draft follows
  bool drafting = false;
};

class StepRunner {
 public:
  // Calls `work`, which throws nothing, for every item it is given, on the thread that the item's
  // callbacks belong to.
  using Work = absl::FunctionRef<void(StepItem&)>;
  using ForEach = absl::FunctionRef<void(Work work)>;

  // With `cache` of a shape that keeps streams, the MTP block's rows are computed, too.
  StepRunner(ModelRanks* model, const KvCache& cache, int64_t vocab);

  // REQUIRES: distinct timelines; rows within the model's limits. Fills each item's status, and
  // throws nothing: memory that runs out is a status, too. Calls `between_layers` before each layer
  // of the forward pass.
  void Run(absl::Span<StepItem> items, ForEach for_each, absl::FunctionRef<void()> between_layers);

 private:
  // A status for the whole step; items may have failed on their own.
  absl::Status Compute(ForEach for_each);
  absl::Status Forward();
  absl::Status SaveStreams();
  absl::Status Choose(ForEach for_each);
  absl::Status PromptLogProbs();
  absl::Status Draft(ForEach for_each);
  void RemoveCancelled();
  void WantNothing();
  // The item's rows whose logits are wanted.
  void WantLogits(StepItem* item);
  // A row is wanted; `question`: what of its logits is enough.
  void Want(int32_t row, const std::optional<LogitQuestion>& question);
  HeadRows Wanted() const { return {.rows = rows_, .questions = questions_}; }
  // Waits for the candidates, and for the logits of the rows that no rule is for.
  absl::Status FetchWanted();
  // Adds what the step's rows and choices have made known to the MTP pass.
  void AddMtpSlots();
  absl::Span<const float> RowOf(const float* logits, int32_t row) const;

  ModelRanks* model_;
  const bool mtp_;  // the MTP block's rows are computed
  const size_t vocab_;
  StepBatch batch_, mtp_batch_;
  absl::Span<StepItem> items_;
  std::vector<int32_t> rows_;             // whose logits are wanted
  std::vector<LogitQuestion> questions_;  // about them
  std::vector<int32_t> saved_rows_;       // whose streams are
  std::vector<int32_t> saves_;            // and the slots that they go to
  std::vector<StreamSource> sources_;     // of the rows of the MTP pass
  bool finished_ = false;                 // the device has nothing left to do of the step
  const absl::FunctionRef<void()>* between_layers_ = nullptr;
  const std::function<bool()> stop_;  // asked between layers
};

}  // namespace dsv4
