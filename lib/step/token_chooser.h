// SPDX-License-Identifier: Apache-2.0
// Computes the distribution of a session's next token: the sampler and everything that it uses in
// addition to the logits (history, forced tokens, the thinking budget, the grammar, the caller's
// set of allowed tokens). Follows the tokens chosen so far. Does not draw tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/grammar/grammar.h"
#include "lib/model/logit_rows.h"
#include "lib/sampling/distribution.h"
#include "lib/sampling/sampler.h"
#include "lib/sampling/token_history.h"
#include "lib/step/engine_facts.h"
#include "lib/step/mask_worker.h"

namespace dsv4 {

// The tokens that are allowed at one place.
struct TokenSet {
  std::vector<uint32_t> bits;  // [TokenMaskWords(vocab)]
  uint64_t id;                 // different for different sets
  bool Holds(int32_t token) const {
    return (bits[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
  }
};

class TokenChooser {
 public:
  explicit TokenChooser(const EngineFacts& facts);  // which outlive it

  // Sets the parameters. A new grammar starts with the next token.
  absl::Status SetParams(const SamplingParams& params);
  const SamplingParams& params() const { return sampler_.params(); }
  // Restricts the next token to `words` [TokenMaskWords(vocab)]; an empty list removes the
  // restriction.
  void SetAllowedNext(absl::Span<const uint32_t> words);
  // Whether the next token is restricted in this way.
  bool restricted() const { return restricted_at_ == outputs_; }
  absl::Span<const uint32_t> allowed_next() const {
    return restricted() ? absl::MakeConstSpan(allowed_next_) : absl::Span<const uint32_t>();
  }

  // Starts a new prompt, without output. The grammar does not apply to the first `free_outputs`
  // tokens that are pushed.
  void Reset(absl::Span<const int32_t> prompt, int64_t free_outputs = 0);
  // The same with another grammar.
  void Reset(absl::Span<const int32_t> prompt, int64_t free_outputs,
             std::shared_ptr<const grammar::Grammar> grammar);
  int64_t free_outputs() const { return free_outputs_; }
  // Adds `token` to the output; removes the output's last token. REQUIRES for Pop: it is `token`.
  void Push(int32_t token);
  void Pop(int32_t token);
  int64_t outputs() const { return outputs_; }

  // Tokens that end a turn.
  bool Ends(int32_t token) const;
  bool has_grammar() const { return matcher_.active(); }
  // The job that finds what the grammar allows next; null if that is known. For the thread of the
  // session, outside of a step. `masks` must run the job; then this must be called again. Only then
  // can the next token be chosen.
  std::shared_ptr<MaskJob> Prepare(const MaskWorker& masks);
  // Whether the job before took longer than a step waits.
  bool slow() const { return slice_ > 0; }
  // The next tokens that the grammar and the bans allow. Null without a grammar. Errors:
  // Unsupported if a limit of the grammar is reached. Where nothing was prepared, behind drafts,
  // that limit is what a step can spend, and nothing waits for other threads.
  absl::StatusOr<std::shared_ptr<const TokenSet>> Allowed();
  // The candidates of the next row that suffice for ComputeDistribution with the random number
  // `uniform`; nullopt: it needs all logits. `allowed`: the result of Allowed(), null if not known.
  std::optional<LogitQuestion> Question(double uniform, const TokenSet* allowed) const;

  // The distribution of the token after the prompt and the output pushed, by row `row`. Errors:
  // those of Sampler::ComputeDistribution, DeviceLost.
  absl::Status ComputeDistribution(LogitRows* logits, int32_t row, Distribution* out);

 private:
  // The forced token, or -1.
  int32_t Forced(const TokenSet* allowed) const;
  void StartGrammar();
  absl::string_view BytesOf(int32_t token) const;

  const EngineFacts* facts_;
  Sampler sampler_;
  grammar::Matcher matcher_;
  std::shared_ptr<MaskJob> job_;  // of Prepare, until it is done
  int64_t job_outputs_ = 0;       // outputs_ at its position
  int slice_ = 0;                 // the one in which the job before was done
  std::optional<absl::StatusOr<grammar::Following>> prepared_;
  int64_t prepared_outputs_ = 0;
  int64_t free_outputs_ = 0;
  // Recent results of Allowed(), by the grammar's mask (null: all tokens) and whether turn and
  // reasoning may end.
  struct KnownSet {
    std::shared_ptr<const grammar::MaskBits> mask;
    bool may_end, may_end_thinking;
    std::shared_ptr<const TokenSet> set;
  };
  std::vector<KnownSet> known_sets_;
  size_t oldest_set_ = 0;
  TokenHistory history_;
  std::vector<uint32_t> allowed_next_;  // [TokenMaskWords(vocab)] of the output restricted_at_
  std::vector<uint32_t> allowed_;       // scratch: the same, without what the grammar forbids
  static constexpr int64_t kNowhere = -1;
  int64_t restricted_at_ = kNowhere;
  int64_t outputs_ = 0;
  // Outputs up to the end of the reasoning; kOpen until it has ended, 0 without reasoning.
  static constexpr int64_t kOpen = -1;
  int64_t reasoning_ = 0;
};

}  // namespace dsv4
