// SPDX-License-Identifier: Apache-2.0
// One timeline's part in a running step. It is made by adding the timeline's next tokens to a batch
// and ended by Commit; destroyed without Commit, it leaves the timeline as before the step. While
// it lives nothing else changes the timeline.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lib/model/logit_rows.h"
#include "lib/step/step_batch.h"
#include "lib/step/timeline.h"

namespace dsv4 {

// What a committed step did for one timeline.
struct StepOutcome {
  int32_t batch_tokens = 0;                          // drafts included
  int32_t verified_drafts = 0, accepted_drafts = 0;  // of the drafts among them
};

class TimelineStep {
 public:
  // Adds the next `tokens` pending tokens to the batch; with `choose` only the last one, followed
  // by drafts. On an error (of StepBatch::Add, among others), *status is set, nothing was added,
  // and the object may only be destroyed. REQUIRES: timeline and batch outlive it.
  TimelineStep(Timeline* timeline, StepBatch* batch, int64_t tokens, bool choose,
               absl::Status* status);
  TimelineStep(const TimelineStep&) = delete;
  TimelineStep& operator=(const TimelineStep&) = delete;
  ~TimelineStep();

  // The timeline's batch tokens are [first_row(), first_row() + rows()) of the batch.
  int32_t first_row() const { return first_row_; }
  int32_t rows() const { return rows_; }

  // Without `choose`: whether the timeline ends with the last batch token, whose logits TakeLogits
  // then keeps.
  bool WantsLogits() const {
    return !choose_ && timeline_->kv_.length() + rows_ == timeline_->size();
  }
  void TakeLogits(absl::Span<const float> logits);
  // With `choose`: which logits of batch token `row`, counted from first_row(), Choose needs;
  // nullopt: all. Valid until the step's end.
  std::optional<LogitQuestion> Question(int32_t row) const;
  // Verifies the drafts and chooses the tokens after them. `logits` from row `first` on are those
  // of the batch tokens. On an error no token was chosen, and the timeline keeps the first row's
  // logits.
  absl::Status Choose(LogitRows* logits, int32_t first);
  // Batch tokens [first, first + count), counted from first_row(), whose logits TakePromptLogProbs
  // needs.
  int32_t first_prompt_log_prob_row() const;
  int32_t prompt_log_prob_rows() const;
  void TakePromptLogProbs(int32_t row, absl::Span<const float> logits);

  // For drafters, after Choose.
  // How many drafts the timeline asks for.
  int32_t drafts_wanted() const { return drafts_wanted_; }
  // The timeline's length in tokens with cache rows, once the step is committed.
  int64_t new_length() const { return timeline_->kv_.length() + kept_rows_; }
  // The drafter has filled its rows below this position; what it sets holds once the step is
  // committed.
  int64_t drafter_rows() const { return timeline_->drafter_rows_; }
  void set_drafter_rows(int64_t rows) { drafter_rows_ = rows; }
  // Takes these as drafts. REQUIRES: at most drafts_wanted().
  void Propose(absl::Span<const int32_t> drafts);
  // Which of the drafter's logits Draft needs; nullopt: all.
  std::optional<LogitQuestion> DraftQuestion();
  // The same for the draft `later` positions after the next one, before that one is known; nullopt
  // if the earlier tokens decide it, or if one answer does not suffice.
  std::optional<LogitQuestion> LaterDraftQuestion(int32_t later) const;
  // Chooses a draft from the drafter's logits, after the drafts before it. False: no further
  // drafts.
  bool Draft(LogitRows* logits, int32_t row);
  // The newest token: the last draft, or without one the last token chosen.
  const int32_t& newest() const;
  // The drafts are complete: the chooser follows the chosen tokens alone again.
  void EndDrafts();

  // Adds the step's batch tokens, except rejected drafts, to the timeline. Afterwards the object
  // may only be destroyed.
  StepOutcome Commit();

 private:
  absl::Status Reserve(StepBatch* batch, int64_t tokens);
  void FindAllowed();
  int32_t DraftsToWant() const;

  Timeline* const timeline_;
  const bool choose_;
  bool can_draft_;
  int32_t first_row_ = 0, rows_ = 0;
  // The tokens that the grammar allows: after each batch token, and for the next draft.
  std::array<std::shared_ptr<const TokenSet>, kMaxDraftTokens + 1> allowed_;
  std::shared_ptr<const TokenSet> draft_allowed_;
  int64_t kept_rows_ = 0;  // to be committed
  int64_t chosen_ = 0;     // tokens
  int32_t drafts_wanted_ = 0;
  int32_t verified_drafts_ = 0, accepted_drafts_ = 0;
  int32_t pushed_drafts_ = 0;  // that the chooser follows
  int64_t drafter_rows_ = 0;   // Timeline::drafter_rows_ once it is committed
};

}  // namespace dsv4
