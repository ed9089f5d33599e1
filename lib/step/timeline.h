// SPDX-License-Identifier: Apache-2.0
// One session's tokens, their cache rows, and the choice of the next token. A step changes it
// through a TimelineStep (timeline_step.h). The text of tokens is the session's.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/kv/kv_sequence.h"
#include "lib/model/logit_rows.h"
#include "lib/sampling/log_probs.h"
#include "lib/step/counters.h"
#include "lib/step/engine_facts.h"
#include "lib/step/engine_text.h"
#include "lib/step/logit_watch.h"
#include "lib/step/session_image.h"
#include "lib/step/speculation.h"
#include "lib/step/token_chooser.h"

namespace dsv4 {

// Log-probabilities at one position under the unmodified logits.
struct PositionLogProbs {
  // Of `token` and the `count` most likely tokens.
  static PositionLogProbs Of(absl::Span<const float> logits, int32_t token, int32_t count);

  float log_prob = 0;  // of the token that is there
  size_t count = 0;
  std::array<TokenLogProb, kMaxLogProbs> top;  // the `count` most likely tokens
  absl::Span<const TokenLogProb> most_likely() const { return {top.data(), count}; }
};

// Log-probabilities that a sync asks for: at the prompt's positions from `begin` on (at least 1,
// because nothing predicts token 0), with the `count` most likely tokens.
struct PromptLogProbs {
  int64_t begin = 0;  // 0 = none
  int32_t count = 0;
};

struct SavedGrammar {
  std::shared_ptr<const grammar::Grammar> grammar;
  int64_t free_outputs = 0;  // outputs before it
};

// Tokens that are chosen but not yet delivered are ahead: their rows are computed, but callers do
// not see them. One thread at a time uses a timeline, except for SetStopped.
class Timeline {
 public:
  // For verification: sees the logits that the token at a position is chosen from.
  using LogitsTap = std::function<void(int64_t position, absl::Span<const float> logits)>;

  // Both outlive the timeline. `counters` count its alarms.
  Timeline(const EngineFacts& facts, SessionCounters* counters, KvSequence kv);

  // Delivered tokens; those ahead; delivered tokens without rows.
  absl::Span<const int32_t> tokens() const {
    return absl::MakeConstSpan(tokens_).subspan(0, static_cast<size_t>(delivered_));
  }
  int64_t delivered() const { return delivered_; }
  int64_t ahead() const { return size() - delivered_; }
  int64_t pending() const { return std::max<int64_t>(delivered_ - kv_.length(), 0); }
  int64_t prompt_tokens() const { return prompt_tokens_; }
  // Logits after the last token; empty while tokens are pending or ahead, or if none are kept.
  absl::Span<const float> logits() const;
  const KvSequence& kv() const { return kv_; }
  absl::StatusOr<KvSequence> ForkRows() { return kv_.Fork(); }
  TokenChooser& chooser() { return chooser_; }
  const TokenChooser& chooser() const { return chooser_; }
  Speculation& speculation() { return speculation_; }
  const Speculation& speculation() const { return speculation_; }
  // Any alarm of the prompt and its output.
  const LogitWatch& watch() const { return watch_; }
  void set_logits_tap(LogitsTap tap) { logits_tap_ = std::move(tap); }

  // `tokens` becomes the timeline, all of it prompt. Keeps the rows of the common prefix and takes
  // rows from the prefix cache. If memory runs out, nothing has changed.
  PrefixReuse Replace(absl::Span<const int32_t> tokens, const PromptLogProbs& log_probs);
  // Truncates to `count` tokens, 0..delivered(). Afterwards the last token's logits are available,
  // or the next step computes them.
  void Truncate(int64_t count);
  // Forgets what is ahead and drafted: the next token is chosen anew.
  void DropAhead();
  // DropAhead, then marks the end of a turn.
  void EndTurn();
  // Copies the state of `other`, except the prompt's log-probabilities. REQUIRES: this timeline's
  // sequence is a fork of the other's.
  void CopyFrom(Timeline& other);

  // What a saved session has of the timeline: the first counts.tokens of all_tokens(), its counts,
  // and the logits of the last row, if kept. Tokens ahead were chosen under this timeline's
  // sampling parameters; they are left out if the rows before them can be saved alone.
  SessionCounts Counts() const;
  absl::Span<const int32_t> all_tokens() const { return tokens_; }
  absl::Span<const float> kept_logits() const;
  // Corrupt when what was saved contradicts itself or the model; ContextFull.
  absl::Status CheckSaved(const SessionCounts& counts, absl::Span<const int32_t> tokens) const;
  // The grammar from a saved session's section `image`; the timeline's own if the section is empty.
  // `text`: the engine's. Errors: Corrupt, NotFound without a tokenizer, those of Grammar::Restore.
  absl::StatusOr<SavedGrammar> ReadGrammar(const SessionCounts& counts,
                                           absl::Span<const uint8_t> image,
                                           const EngineText& text) const;
  // Replaces the timeline with the saved one; tokens ahead are dropped. `cache` is the image for
  // KvSequence::ReadImage, whose errors it returns; the timeline is then unchanged. REQUIRES:
  // CheckSaved.
  absl::Status Restore(const SessionCounts& counts, absl::Span<const int32_t> tokens,
                       absl::Span<const uint8_t> logits, absl::Span<const uint8_t> cache,
                       const SavedGrammar& grammar);

  // Chooses one token from logits(). REQUIRES: logits() is not empty.
  absl::Status ChooseFromLogits();
  // The first token ahead is delivered. REQUIRES: there is one.
  int32_t Deliver() { return tokens_[static_cast<size_t>(delivered_++)]; }
  // True for tokens that end a turn.
  bool Ends(int32_t token) const { return chooser_.Ends(token); }
  // Of the last token delivered, when params().log_probs > 0, until the next choice.
  const PositionLogProbs& log_probs() const { return LogProbsOf(delivered_ - 1); }
  // Of tokens [prompt_log_probs_begin(), + size) of the prompt, as far as computed.
  absl::Span<const PositionLogProbs> prompt_log_probs() const { return prompt_log_probs_; }
  int64_t prompt_log_probs_begin() const { return prompt_log_probs_wanted_.begin; }

  // The status of a step that was cancelled. Does not throw.
  absl::Status CancelledStatus() const;
  // Any thread; see Session::SetStopped.
  void SetStopped(bool stopped) { stopped_.store(stopped, std::memory_order_relaxed); }
  bool stopped() const { return stopped_.load(std::memory_order_relaxed); }

  // How many of at most `max_tokens` pending tokens the next step can compute.
  int64_t NextTokens(int64_t max_tokens) const;

 private:
  friend class TimelineStep;  // changes the timeline while a step runs

  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  // Where the next turn branches off the prompt: just before its last token. There a turn's
  // `<think>` becomes `</think>` when its reasoning is dropped. A restore point.
  int64_t branch() const { return prompt_tokens_ - 1; }
  PositionLogProbs& LogProbsOf(int64_t position) {
    return log_probs_[static_cast<size_t>(position) % log_probs_.size()];
  }
  const PositionLogProbs& LogProbsOf(int64_t position) const {
    return log_probs_[static_cast<size_t>(position) % log_probs_.size()];
  }
  // The random number for the token `later` positions after the next one. A draft and the choice of
  // the same token use the same number.
  double NextUniform(int32_t later = 0) const;
  // Chooses the next token. A draft of it (-1: none) is accepted if it is the one chosen, so that
  // drafts change no token.
  absl::Status ChooseOne(LogitRows* logits, int32_t row, int32_t draft, bool* accepted);
  // Looks at the logits that the next token is chosen from.
  absl::Status Watch(LogitRows* logits, int32_t row);
  void ReportAlarms();
  void RemoveLast();
  void RowsChanged();

  const EngineFacts* facts_;
  SessionCounters* counters_;
  const int64_t context_, vocab_;
  std::vector<int32_t> tokens_;  // reserved to the context
  int64_t delivered_ = 0;
  int64_t prompt_tokens_ = 0;
  KvSequence kv_;
  int64_t drafter_rows_ = 0;   // the drafter's rows below it are filled
  std::vector<float> logits_;  // [vocab] of token kv_.length() - 1, when has_logits_
  bool has_logits_ = false;
  TokenChooser chooser_;
  Distribution distribution_;
  Speculation speculation_;
  LogitWatch watch_;
  std::array<PositionLogProbs, kMaxDraftTokens + 1> log_probs_;  // of the last choice's tokens
  PromptLogProbs prompt_log_probs_wanted_;
  std::vector<PositionLogProbs> prompt_log_probs_;
  LogitsTap logits_tap_;
  std::atomic<bool> stopped_{false};
};

}  // namespace dsv4
