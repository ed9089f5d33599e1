// SPDX-License-Identifier: Apache-2.0
#include "lib/step/timeline.h"

#include <algorithm>
#include <utility>

#include "lib/base/contained.h"
#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/sampling/rng.h"

namespace dsv4 {

PositionLogProbs PositionLogProbs::Of(absl::Span<const float> logits, int32_t token,
                                      int32_t count) {
  PositionLogProbs result;
  const double mass = LogMass(logits);
  result.log_prob = LogProb(logits, mass, token);
  result.count =
      TopLogProbs(logits, mass, absl::MakeSpan(result.top).subspan(0, static_cast<size_t>(count)));
  return result;
}

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
  chooser_.Reset(absl::MakeConstSpan(tokens_).subspan(0, static_cast<size_t>(prompt_tokens_)),
                 other.chooser_.free_outputs());
  for (int64_t i = prompt_tokens_; i < size(); ++i) chooser_.Push(tokens_[static_cast<size_t>(i)]);
  chooser_.SetAllowedNext(other.chooser_.allowed_next());
  speculation_ = other.speculation_;
  watch_ = other.watch_;
  log_probs_ = other.log_probs_;
  // The slot at the end is in neither sequence's own blocks any more.
  drafter_rows_ = other.drafter_rows_ = kv_.length();
}

double Timeline::NextUniform(int32_t later) const {
  return Uniform(chooser_.params().seed, tokens_.size() + static_cast<size_t>(later));
}

absl::Status Timeline::Watch(LogitRows* logits, int32_t row) {
  // Bringing each row of a device to the host would cost more than the alarm may.
  if (logits->Candidates(row) != nullptr && size() % LogitWatch::kDevicePositions != 0) {
    return absl::OkStatus();
  }
  DSV4_ASSIGN_OR_RETURN(const absl::Span<const float> all, logits->Row(row));
  return watch_.See(size(), all);
}

void Timeline::ReportAlarms() {
  const int32_t raised = watch_.TakeNew();
  if (raised == 0) return;
  for (int32_t kind = 0; kind < kAlarmKinds; ++kind) {
    if ((raised >> kind & 1) == 0) continue;
    const auto alarm = static_cast<Alarm>(1 << kind);
    counters_->CountAlarm(alarm);
    Log(LogLevel::kWarning, "alarm ", AlarmName(alarm), " at token ", size());
  }
}

absl::Status Timeline::ChooseOne(LogitRows* logits, int32_t row, int32_t draft, bool* accepted) {
  const absl::Status seen = Watch(logits, row);
  if (!seen.ok()) {
    ReportAlarms();
    return seen;
  }
  DSV4_RETURN_IF_ERROR(chooser_.ComputeDistribution(logits, row, &distribution_));
  const int32_t token = Draw(distribution_, NextUniform());
  *accepted = draft == token;
  const int32_t log_probs = chooser_.params().log_probs;
  if (logits_tap_ || log_probs > 0) {
    DSV4_ASSIGN_OR_RETURN(const absl::Span<const float> all, logits->Row(row));
    if (logits_tap_) logits_tap_(size(), all);
    if (log_probs > 0) LogProbsOf(size()) = PositionLogProbs::Of(all, token, log_probs);
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
  LogitRows logits(absl::MakeSpan(logits_));
  DSV4_RETURN_IF_ERROR(ChooseOne(&logits, 0, -1, &accepted));
  has_logits_ = false;
  return absl::OkStatus();
}

int64_t Timeline::NextTokens(int64_t max_tokens) const {
  const int64_t tokens = std::min(max_tokens, size() - kv_.length());
  // The branch is a restore point: a step of its own begins there.
  return kv_.length() < branch() ? std::min(tokens, branch() - kv_.length()) : tokens;
}

}  // namespace dsv4
