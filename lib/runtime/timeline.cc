// SPDX-License-Identifier: Apache-2.0
#include "lib/runtime/timeline.h"

#include <algorithm>
#include <utility>

#include "lib/base/contained.h"
#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/sampling/rng.h"

namespace dsv4 {
namespace {

PositionLogProbs LogProbsAt(absl::Span<const float> logits, int32_t token, int32_t count) {
  PositionLogProbs result;
  const double mass = LogMass(logits);
  result.log_prob = LogProb(logits, mass, token);
  result.count =
      TopLogProbs(logits, mass, absl::MakeSpan(result.top).subspan(0, static_cast<size_t>(count)));
  return result;
}

}  // namespace

Timeline::Timeline(const EngineFacts& facts, SessionCounters* counters, KvSequence kv)
    : facts_(&facts),
      counters_(counters),
      context_(facts.info.context_tokens),
      vocab_(facts.config.vocab_size),
      kv_(std::move(kv)),
      logits_(static_cast<size_t>(vocab_)),
      chooser_(facts),
      distribution_(vocab_),
      speculation_(facts.info.max_draft_tokens),
      watch_(static_cast<int32_t>(facts.config.bos_token_id)) {
  tokens_.reserve(static_cast<size_t>(context_));
}

absl::Span<const float> Timeline::logits() const {
  if (!has_logits_ || kv_.length() != size() || ahead() > 0) return {};
  return logits_;
}

absl::Status Timeline::CancelledStatus() const {
  return Contained([&] { return Cancelled("cancelled with ", pending(), " tokens pending"); });
}

// After any change of the rows but a step's.
void Timeline::RowsChanged() {
  has_logits_ = false;
  drafter_rows_ = kv_.length();
}

PrefixReuse Timeline::Replace(absl::Span<const int32_t> tokens, const PromptLogProbs& log_probs) {
  const int64_t count = static_cast<int64_t>(tokens.size());
  if (log_probs.begin > 0) prompt_log_probs_.reserve(static_cast<size_t>(count - log_probs.begin));
  const auto differ = std::mismatch(tokens.begin(), tokens.end(), tokens_.begin(), tokens_.end());
  const int64_t common = differ.first - tokens.begin();
  // The next token needs the last one's logits: without them there must be something to compute.
  const bool complete = common == count && kv_.length() == count && has_logits_;
  int64_t reusable = complete ? count : count - 1;
  if (log_probs.begin > 0) reusable = std::min(reusable, log_probs.begin - 1);
  const PrefixReuse reuse = kv_.AdoptPrefix(tokens, common, reusable);
  if (!complete) RowsChanged();
  tokens_.assign(tokens.begin(), tokens.end());
  delivered_ = prompt_tokens_ = count;
  chooser_.Reset(tokens);
  speculation_.Reset();
  watch_.Reset();
  prompt_log_probs_wanted_ = log_probs;
  prompt_log_probs_.clear();
  return reuse;
}

void Timeline::RemoveLast() {
  if (size() > prompt_tokens_) chooser_.Pop(tokens_.back());
  tokens_.pop_back();
}

void Timeline::Truncate(int64_t count) {
  speculation_.Clear();
  const bool complete = ahead() == 0 && count == delivered_ && !logits().empty();
  while (size() > count) RemoveLast();
  delivered_ = count;
  if (count < prompt_tokens_) {
    prompt_tokens_ = count;
    chooser_.Reset(tokens_);
    const int64_t begin = prompt_log_probs_wanted_.begin;
    if (begin > 0) {
      const size_t kept = static_cast<size_t>(std::max<int64_t>(count - begin, 0));
      prompt_log_probs_.resize(std::min(prompt_log_probs_.size(), kept));
    }
  }
  if (complete || kv_.length() < count) return;
  kv_.Rewind(std::max<int64_t>(count - 1, 0));
  RowsChanged();
}

void Timeline::DropAhead() {
  speculation_.Clear();
  if (ahead() > 0) Truncate(delivered_);
}

void Timeline::EndTurn() {
  DropAhead();
  kv_.MarkTurnEnd();
}

void Timeline::CopyFrom(Timeline& other) {
  tokens_.assign(other.tokens_.begin(), other.tokens_.end());
  delivered_ = other.delivered_;
  prompt_tokens_ = other.prompt_tokens_;
  logits_ = other.logits_;
  has_logits_ = other.has_logits_;
  chooser_.set_mask(other.chooser_.mask());
  chooser_.Reset(absl::MakeConstSpan(tokens_).subspan(0, static_cast<size_t>(prompt_tokens_)),
                 other.chooser_.free_outputs());
  for (int64_t i = prompt_tokens_; i < size(); ++i) chooser_.Push(tokens_[static_cast<size_t>(i)]);
  speculation_ = other.speculation_;
  watch_ = other.watch_;
  log_probs_ = other.log_probs_;
  // The slot at the end is in neither sequence's own blocks any more.
  drafter_rows_ = other.drafter_rows_ = kv_.length();
}

double Timeline::NextUniform(int32_t later) const {
  return Uniform(chooser_.params().seed, tokens_.size() + static_cast<size_t>(later));
}

absl::Status Timeline::Watch(const TokenLogits& logits) {
  // Bringing each row of a device to the host would cost more than the alarm may.
  if (logits.candidates() != nullptr && size() % LogitWatch::kDevicePositions != 0) {
    return absl::OkStatus();
  }
  DSV4_ASSIGN_OR_RETURN(const absl::Span<const float> all, logits.All());
  return watch_.See(size(), all);
}

void Timeline::ReportAlarms() {
  const int32_t raised = watch_.TakeNew();
  if (raised == 0) return;
  for (int32_t kind = 0; kind < kAlarmKinds; ++kind) {
    if ((raised >> kind & 1) == 0) continue;
    counters_->alarms[static_cast<size_t>(kind)].fetch_add(1, std::memory_order_relaxed);
    Log(LogLevel::kWarning, "alarm ", AlarmName(static_cast<Alarm>(1 << kind)), " at token ",
        size());
  }
}

absl::Status Timeline::ChooseOne(const TokenLogits& logits, int32_t draft, bool* accepted) {
  const absl::Status seen = Watch(logits);
  if (!seen.ok()) {
    ReportAlarms();
    return seen;
  }
  DSV4_RETURN_IF_ERROR(chooser_.Shape(logits, tokens_, &distribution_));
  const int32_t token = Draw(distribution_, NextUniform());
  *accepted = draft == token;
  const int32_t log_probs = chooser_.params().log_probs;
  if (logits_tap_ || log_probs > 0) {
    DSV4_ASSIGN_OR_RETURN(const absl::Span<const float> all, logits.All());
    if (logits_tap_) logits_tap_(size(), all);
    if (log_probs > 0) LogProbsOf(size()) = LogProbsAt(all, token, log_probs);
  }
  watch_.SeeToken(size(), token);
  ReportAlarms();
  chooser_.Push(token);
  tokens_.push_back(token);
  return absl::OkStatus();
}

absl::Status Timeline::ChooseFromLogits() {
  speculation_.Clear();
  bool accepted;
  DSV4_RETURN_IF_ERROR(ChooseOne(TokenLogits(absl::MakeConstSpan(logits_)), -1, &accepted));
  has_logits_ = false;
  return absl::OkStatus();
}

int64_t Timeline::NextRows(int64_t max_rows) const {
  const int64_t left = size() - kv_.length();
  const int64_t rows = std::min(max_rows, left);
  // The branch is a restore point: a step of its own begins there.
  return kv_.length() < branch() ? std::min(rows, branch() - kv_.length()) : rows;
}

absl::Status Timeline::AddTo(StepBatch* batch, int64_t rows, bool choose) {
  if (!choose) speculation_.Clear();
  if (choose) FindAllowed();
  chooses_ = choose;
  chosen_ = 0;
  drafts_wanted_ = 0;
  verified_drafts_ = accepted_drafts_ = 0;
  step_drafter_rows_ = 0;
  // An upper bound on the drafts after this step: what it chooses is not known yet.
  can_draft_ = choose && !proposer_ && speculation_.max_drafts() > 0;
  absl::Status status = Reserve(batch, rows);
  if (IsOutOfBlocks(status) && choose) {
    // Without drafts the blocks may suffice.
    speculation_.Clear();
    can_draft_ = false;
    status = Reserve(batch, rows);
  }
  kept_rows_ = status.ok() ? rows : 0;
  if (!status.ok()) rows_ = 0;
  return status;
}

// Before the pass, so that the device can pick candidates: the grammar goes along the drafts, up to
// one that it rejects, and back. What is not found here is an error once a token is chosen there.
void Timeline::FindAllowed() {
  allowed_.fill(nullptr);
  if (!chooser_.has_grammar()) return;
  const absl::Span<const int32_t> drafts = speculation_.drafts();
  size_t pushed = 0;
  Contained([&]() -> absl::Status {
    for (;;) {
      DSV4_ASSIGN_OR_RETURN(allowed_[pushed], chooser_.Allowed());
      if (pushed == drafts.size() || !allowed_[pushed]->Holds(drafts[pushed])) break;
      chooser_.Push(drafts[pushed]);
      ++pushed;
    }
    return absl::OkStatus();
  }).IgnoreError();
  for (size_t i = pushed; i-- > 0;) chooser_.Pop(drafts[i]);
  speculation_.Keep(static_cast<int32_t>(pushed));
}

absl::Status Timeline::Reserve(StepBatch* batch, int64_t rows) {
  const int64_t begin = kv_.length();
  const absl::Span<const int32_t> drafts = speculation_.drafts();
  rows_ = static_cast<int32_t>(rows) + static_cast<int32_t>(drafts.size());
  const int64_t slots = can_draft_ ? facts_->DraftSlots(chooser_.params().draft_tokens) : 0;
  const int64_t extra = std::min(slots, context_ - begin - rows_);
  const size_t before = tokens_.size();
  tokens_.insert(tokens_.end(), drafts.begin(), drafts.end());
  const absl::Status status = Contained([&] {
    return batch->Add(&kv_,
                      absl::MakeConstSpan(tokens_).subspan(static_cast<size_t>(begin),
                                                           static_cast<size_t>(rows_)),
                      extra, !drafts.empty());
  });
  tokens_.resize(before);
  return status;
}

void Timeline::TakeLogits(absl::Span<const float> logits) {
  std::copy(logits.begin(), logits.end(), logits_.begin());
  has_logits_ = true;
}

std::optional<LogitQuestion> Timeline::Question(int32_t row) const {
  if (chooser_.params().log_probs > 0) return std::nullopt;
  return chooser_.Question(NextUniform(row), allowed_[static_cast<size_t>(row)].get());
}

std::optional<LogitQuestion> Timeline::DraftQuestion() {
  draft_allowed_ = nullptr;
  if (chooser_.has_grammar()) {
    Contained([&]() -> absl::Status {
      DSV4_ASSIGN_OR_RETURN(draft_allowed_, chooser_.Allowed());
      return absl::OkStatus();
    }).IgnoreError();
  }
  return chooser_.Question(NextUniform(), draft_allowed_.get());
}

std::optional<LogitQuestion> Timeline::LaterDraftQuestion(int32_t later) const {
  const std::optional<LogitQuestion> question = chooser_.Question(NextUniform(later), nullptr);
  const bool one = question && (question->rule.kind == CandidateRule::kLargest ||
                                question->rule.kind == CandidateRule::kDraw);
  return one ? question : std::nullopt;
}

absl::Status Timeline::Choose(LogitRows* logits, int32_t first) {
  const int32_t drafts = static_cast<int32_t>(speculation_.drafts().size());
  has_logits_ = false;
  for (int32_t row = 0;; ++row) {
    const TokenLogits row_logits(logits, first + row);
    bool accepted = false;
    const int32_t draft = row < drafts ? speculation_.drafts()[static_cast<size_t>(row)] : -1;
    const absl::Status status = Contained([&] { return ChooseOne(row_logits, draft, &accepted); });
    kept_rows_ = row + 1;
    if (!status.ok()) {
      speculation_.Clear();
      DSV4_ASSIGN_OR_RETURN(const absl::Span<const float> all, row_logits.All());
      TakeLogits(all);
      return chosen_ > 0 ? absl::OkStatus() : status;
    }
    ++chosen_;
    // A turn's end is chosen as without drafts: its row is not computed.
    if (row == drafts || !accepted || Ends(tokens_.back())) {
      verified_drafts_ = drafts;
      accepted_drafts_ = row + (accepted ? 1 : 0);
      speculation_.Record(accepted_drafts_);
      if (speculation_.fell_back()) watch_.Raise(Alarm::kFewAccepted);
      ReportAlarms();
      break;
    }
  }
  if (proposer_) {
    std::array<int32_t, kMaxDraftTokens> drafts;
    const auto wanted = absl::MakeSpan(drafts).subspan(0, static_cast<size_t>(DraftsToWant()));
    if (!wanted.empty()) Propose(wanted.subspan(0, proposer_(tokens_, wanted)));
  } else if (can_draft_) {
    drafts_wanted_ = DraftsToWant();
  }
  return absl::OkStatus();
}

// Drafts must leave room for the token chosen after them.
int32_t Timeline::DraftsToWant() const {
  const SamplingParams& params = chooser_.params();
  int64_t drafts = std::min(params.draft_tokens, speculation_.max_drafts());
  if (drafts == 0 || speculation_.fell_back() || Ends(tokens_.back())) return 0;
  if (params.max_tokens > 0) drafts = std::min(drafts, params.max_tokens - chooser_.outputs() - 1);
  drafts = std::min(drafts, context_ - size() - 1);
  return static_cast<int32_t>(std::max<int64_t>(drafts, 0));
}

void Timeline::Propose(absl::Span<const int32_t> drafts) {
  for (const int32_t draft : drafts) speculation_.Add(draft);
}

int32_t Timeline::first_prompt_log_prob_row() const {
  const int64_t first = prompt_log_probs_wanted_.begin - 1 - kv_.length();
  return static_cast<int32_t>(std::clamp<int64_t>(first, 0, rows_));
}

int32_t Timeline::prompt_log_prob_rows() const {
  if (prompt_log_probs_wanted_.begin == 0) return 0;
  // The last token of the prompt predicts none of it.
  const int64_t end = std::min<int64_t>(prompt_tokens_ - 1 - kv_.length(), rows_);
  return static_cast<int32_t>(std::max<int64_t>(end - first_prompt_log_prob_row(), 0));
}

void Timeline::TakePromptLogProbs(int32_t row, absl::Span<const float> logits) {
  const int64_t position = kv_.length() + row + 1;
  // Rows that are computed again, after a step was given up, change nothing.
  if (position != prompt_log_probs_wanted_.begin + static_cast<int64_t>(prompt_log_probs_.size())) {
    return;
  }
  prompt_log_probs_.push_back(
      LogProbsAt(logits, tokens_[static_cast<size_t>(position)], prompt_log_probs_wanted_.count));
}

bool Timeline::Draft(const TokenLogits& logits) {
  // No draft is a way out where none can be chosen: the step that comes to it reports why.
  if (!Contained([&] { return chooser_.Shape(logits, tokens_, &distribution_); }).ok())
    return false;
  const int32_t token = Draw(distribution_, NextUniform());
  speculation_.Add(token);
  chooser_.Push(token);
  tokens_.push_back(token);
  ++drafts_at_end_;
  return static_cast<int32_t>(speculation_.drafts().size()) < drafts_wanted_ && !Ends(token);
}

void Timeline::EndDrafts() {
  for (; drafts_at_end_ > 0; --drafts_at_end_) RemoveLast();
}

void Timeline::Commit() {
  if (!chooses_ && !LogitsWanted()) has_logits_ = false;
  drafter_rows_ = std::max(drafter_rows_, step_drafter_rows_);
  kv_.Commit(kept_rows_);
  kv_.Publish(tokens_, prompt_tokens_);
  if (kv_.length() == branch()) kv_.MarkTurnEnd();
  rows_ = 0;
}

void Timeline::Abandon() {
  if (rows_ > 0) kv_.Commit(0);
  EndDrafts();
  if (chosen_ > 0) speculation_.Clear();
  for (; chosen_ > 0; --chosen_) RemoveLast();
  has_logits_ = false;
  rows_ = 0;
  drafts_wanted_ = 0;
}

}  // namespace dsv4
