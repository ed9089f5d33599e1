// SPDX-License-Identifier: Apache-2.0
#include "lib/step/timeline_step.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "lib/base/contained.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"

namespace dsv4 {

TimelineStep::TimelineStep(Timeline* timeline, StepBatch* batch, int64_t tokens, bool choose,
                           absl::Status* status)
    : timeline_(timeline), choose_(choose) {
  Speculation& speculation = timeline_->speculation_;
  if (timeline_->kv_.length() == 0) {
    // Also after rows were lost with a device.
    timeline_->drafter_rows_ = 0;
    timeline_->prompt_log_probs_.clear();
    speculation.Clear();
  }
  if (choose_) {
    FindAllowed();
  } else {
    speculation.Clear();
  }
  // An upper bound on the drafts after this step, because the tokens that it will choose are
  // unknown.
  // A step would have no time for the masks behind the drafts.
  can_draft_ = choose_ && speculation.max_drafts() > 0 && !timeline_->chooser_.slow();
  *status = Reserve(batch, tokens);
  if (IsOutOfBlocks(*status) && choose_) {
    // Without drafts the blocks may suffice.
    speculation.Clear();
    can_draft_ = false;
    *status = Reserve(batch, tokens);
  }
  if (!status->ok()) {
    rows_ = 0;
    return;
  }
  first_row_ = batch->sequence(batch->sequence_count() - 1).first_row;
  kept_rows_ = tokens;
}

TimelineStep::~TimelineStep() {
  if (rows_ == 0) return;  // committed, or nothing was added
  timeline_->kv_.Commit(0);
  EndDrafts();
  if (chosen_ > 0) timeline_->speculation_.Clear();
  for (; chosen_ > 0; --chosen_) timeline_->RemoveLast();
  timeline_->has_logits_ = false;
}

// Called before the pass, so that the device can select candidates: pushes the drafts to the
// grammar, up to one that it rejects, and pops them. If a mask is missing here, choosing a token
// there is an error.
void TimelineStep::FindAllowed() {
  TokenChooser& chooser = timeline_->chooser_;
  if (!chooser.has_grammar()) return;
  const absl::Span<const int32_t> drafts = timeline_->speculation_.drafts();
  size_t pushed = 0;
  Contained([&]() -> absl::Status {
    for (;;) {
      DSV4_ASSIGN_OR_RETURN(allowed_[pushed], chooser.Allowed());
      if (pushed == drafts.size() || !allowed_[pushed]->Holds(drafts[pushed])) break;
      chooser.Push(drafts[pushed]);
      ++pushed;
    }
    return absl::OkStatus();
  }).IgnoreError();
  for (size_t i = pushed; i-- > 0;) chooser.Pop(drafts[i]);
  timeline_->speculation_.Keep(static_cast<int32_t>(pushed));
}

absl::Status TimelineStep::Reserve(StepBatch* batch, int64_t tokens) {
  const int64_t begin = timeline_->kv_.length();
  const absl::Span<const int32_t> drafts = timeline_->speculation_.drafts();
  rows_ = static_cast<int32_t>(tokens) + static_cast<int32_t>(drafts.size());
  const int64_t slots =
      can_draft_ ? timeline_->facts_->DraftSlots(timeline_->chooser_.params().draft_tokens) : 0;
  const int64_t extra = std::min(slots, timeline_->context_ - begin - rows_);
  return Contained([&] {
    return batch->Add(
        &timeline_->kv_,
        timeline_->all_tokens().subspan(static_cast<size_t>(begin), static_cast<size_t>(tokens)),
        extra, drafts);
  });
}

void TimelineStep::TakeLogits(absl::Span<const float> logits) {
  std::copy(logits.begin(), logits.end(), timeline_->logits_.begin());
  timeline_->has_logits_ = true;
}

std::optional<LogitQuestion> TimelineStep::Question(int32_t row) const {
  const TokenChooser& chooser = timeline_->chooser_;
  if (chooser.params().log_probs > 0) return std::nullopt;
  return chooser.Question(timeline_->NextUniform(row), allowed_[static_cast<size_t>(row)].get());
}

std::optional<LogitQuestion> TimelineStep::DraftQuestion() {
  TokenChooser& chooser = timeline_->chooser_;
  draft_allowed_ = nullptr;
  if (chooser.has_grammar()) {
    Contained([&]() -> absl::Status {
      DSV4_ASSIGN_OR_RETURN(draft_allowed_, chooser.Allowed());
      return absl::OkStatus();
    }).IgnoreError();
  }
  return chooser.Question(timeline_->NextUniform(pushed_drafts_), draft_allowed_.get());
}

std::optional<LogitQuestion> TimelineStep::LaterDraftQuestion(int32_t later) const {
  const std::optional<LogitQuestion> question =
      timeline_->chooser_.Question(timeline_->NextUniform(later), nullptr);
  const bool one = question && (question->rule.kind == CandidateRule::kLargest ||
                                question->rule.kind == CandidateRule::kDraw);
  return one ? question : std::nullopt;
}

absl::Status TimelineStep::Choose(LogitRows* logits, int32_t first) {
  Speculation& speculation = timeline_->speculation_;
  const int32_t drafts = static_cast<int32_t>(speculation.drafts().size());
  // A host that restricts this token will restrict the next one, too.
  const bool restricted = timeline_->chooser_.restricted();
  timeline_->has_logits_ = false;
  for (int32_t row = 0;; ++row) {
    bool accepted = false;
    const int32_t draft = row < drafts ? speculation.drafts()[static_cast<size_t>(row)] : -1;
    const absl::Status status =
        Contained([&] { return timeline_->ChooseOne(logits, first + row, draft, &accepted); });
    kept_rows_ = row + 1;
    if (!status.ok()) {
      speculation.Clear();
      DSV4_ASSIGN_OR_RETURN(const absl::Span<const float> all, logits->Row(first + row));
      TakeLogits(all);
      return chosen_ > 0 ? absl::OkStatus() : status;
    }
    ++chosen_;
    // A turn's end is chosen as without drafts: its row is not computed.
    if (row == drafts || !accepted || timeline_->Ends(timeline_->tokens_.back())) {
      verified_drafts_ = drafts;
      accepted_drafts_ = row + (accepted ? 1 : 0);
      speculation.Record(accepted_drafts_);
      if (speculation.fell_back()) timeline_->watch_.Raise(Alarm::kFewAccepted);
      timeline_->ReportAlarms();
      break;
    }
  }
  if (can_draft_ && !restricted) drafts_wanted_ = DraftsToWant();
  return absl::OkStatus();
}

// Drafts must leave room for the token chosen after them.
int32_t TimelineStep::DraftsToWant() const {
  const Timeline& timeline = *timeline_;
  const SamplingParams& params = timeline.chooser_.params();
  const Speculation& speculation = timeline.speculation_;
  int64_t drafts = std::min(params.draft_tokens, speculation.max_drafts());
  if (drafts == 0 || speculation.fell_back() || timeline.Ends(timeline.tokens_.back())) return 0;
  if (params.max_tokens > 0) {
    drafts = std::min(drafts, params.max_tokens - timeline.chooser_.outputs() - 1);
  }
  drafts = std::min(drafts, timeline.context_ - timeline.size() - 1);
  return static_cast<int32_t>(std::max<int64_t>(drafts, 0));
}

void TimelineStep::Propose(absl::Span<const int32_t> drafts) {
  for (const int32_t draft : drafts) timeline_->speculation_.Add(draft);
}

int32_t TimelineStep::first_prompt_log_prob_row() const {
  const int64_t first = timeline_->prompt_log_probs_wanted_.begin - 1 - timeline_->kv_.length();
  return static_cast<int32_t>(std::clamp<int64_t>(first, 0, rows_));
}

int32_t TimelineStep::prompt_log_prob_rows() const {
  if (timeline_->prompt_log_probs_wanted_.begin == 0) return 0;
  // The last token of the prompt predicts none of it.
  const int64_t end =
      std::min<int64_t>(timeline_->prompt_tokens_ - 1 - timeline_->kv_.length(), rows_);
  return static_cast<int32_t>(std::max<int64_t>(end - first_prompt_log_prob_row(), 0));
}

void TimelineStep::TakePromptLogProbs(int32_t row, absl::Span<const float> logits) {
  const PromptLogProbs& wanted = timeline_->prompt_log_probs_wanted_;
  std::vector<PositionLogProbs>& taken = timeline_->prompt_log_probs_;
  const int64_t position = timeline_->kv_.length() + row + 1;
  // Rows that are computed again, after a step was given up, change nothing.
  if (position != wanted.begin + static_cast<int64_t>(taken.size())) return;
  taken.push_back(PositionLogProbs::Of(logits, timeline_->tokens_[static_cast<size_t>(position)],
                                       wanted.count));
}

bool TimelineStep::Draft(LogitRows* logits, int32_t row) {
  Timeline& timeline = *timeline_;
  // No draft is a way out where none can be chosen: the step that comes to it reports why.
  const auto compute = [&] {
    return timeline.chooser_.ComputeDistribution(logits, row, &timeline.distribution_);
  };
  if (!Contained(compute).ok()) return false;
  const int32_t token = Draw(timeline.distribution_, timeline.NextUniform(pushed_drafts_));
  timeline.speculation_.Add(token);
  timeline.chooser_.Push(token);
  ++pushed_drafts_;
  return static_cast<int32_t>(timeline.speculation_.drafts().size()) < drafts_wanted_ &&
         !timeline.Ends(token);
}

const int32_t& TimelineStep::newest() const {
  return pushed_drafts_ > 0 ? timeline_->speculation_.drafts().back() : timeline_->tokens_.back();
}

void TimelineStep::EndDrafts() {
  for (; pushed_drafts_ > 0; --pushed_drafts_) {
    timeline_->chooser_.Pop(
        timeline_->speculation_.drafts()[static_cast<size_t>(pushed_drafts_ - 1)]);
  }
}

StepOutcome TimelineStep::Commit() {
  Timeline& timeline = *timeline_;
  if (!choose_ && !WantsLogits()) timeline.has_logits_ = false;
  timeline.drafter_rows_ = std::max(timeline.drafter_rows_, drafter_rows_);
  timeline.kv_.Commit(kept_rows_);
  timeline.kv_.Publish(timeline.tokens_, timeline.prompt_tokens_);
  if (timeline.kv_.length() == timeline.branch()) timeline.kv_.MarkTurnEnd();
  return {.batch_tokens = std::exchange(rows_, 0),
          .verified_drafts = verified_drafts_,
          .accepted_drafts = accepted_drafts_};
}

}  // namespace dsv4
