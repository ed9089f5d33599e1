// SPDX-License-Identifier: Apache-2.0
// What the next token of a session is chosen from: the sampler with all that it looks at besides
// the logits (history, forced tokens, the thinking budget, the grammar, the caller's mask), kept in
// step with the tokens chosen so far. It draws nothing and knows no rows.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lib/grammar/grammar.h"
#include "lib/model/logit_rows.h"
#include "lib/runtime/engine_facts.h"
#include "lib/sampling/distribution.h"
#include "lib/sampling/sampler.h"
#include "lib/sampling/token_history.h"

namespace dsv4 {

// Asked before each token is chosen, drafts included, in the thread of the call that steps the
// session; it must not use the session. `timeline` is the prompt of `prompt_tokens` and the output
// so far, drafts included: the answer must depend on it alone. Clears in `allowed`
// [TokenMaskWords(vocab)], where all bits are set, those of tokens that must not come. False makes
// the step fail as Cancelled.
struct TokenMask {
  bool (*fn)(void* user, absl::Span<const int32_t> timeline, int64_t prompt_tokens,
             absl::Span<uint32_t> allowed) = nullptr;
  void* user = nullptr;
};

// Tokens that may come at one place.
struct TokenSet {
  std::vector<uint32_t> bits;  // [TokenMaskWords(vocab)]
  uint64_t id;                 // of equal sets alone
  bool Holds(int32_t token) const {
    return (bits[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
  }
};

class TokenChooser {
 public:
  explicit TokenChooser(const EngineFacts& facts);  // which outlive it

  // Another grammar than before begins with the next token.
  absl::Status SetParams(const SamplingParams& params);
  const SamplingParams& params() const { return sampler_.params(); }
  void set_mask(const TokenMask& mask) { mask_ = mask; }
  const TokenMask& mask() const { return mask_; }

  // A new prompt, without output. Of what is pushed, the first `free_outputs` tokens are not the
  // grammar's.
  void Reset(absl::Span<const int32_t> prompt, int64_t free_outputs = 0);
  // The same with another grammar.
  void Reset(absl::Span<const int32_t> prompt, int64_t free_outputs,
             std::shared_ptr<const grammar::Grammar> grammar);
  int64_t free_outputs() const { return free_outputs_; }
  // The output grew by `token`; took back its last one. REQUIRES for Pop: it is `token`.
  void Push(int32_t token);
  void Pop(int32_t token);
  int64_t outputs() const { return outputs_; }

  // Tokens that end a turn.
  bool Ends(int32_t token) const;
  bool has_grammar() const { return matcher_.active(); }
  // What may come next by the grammar and the bans. Null without a grammar. Unsupported where the
  // grammar's bounds are reached.
  absl::StatusOr<std::shared_ptr<const TokenSet>> Allowed();
  // The logits of the next row that ComputeDistribution needs if it draws by `uniform`; none: all.
  // `allowed`: what Allowed() is there, null also where that is not known.
  std::optional<LogitQuestion> Question(double uniform, const TokenSet* allowed) const;

  // The distribution of the token after `timeline`: the prompt and the output pushed. Errors: those
  // of Sampler::ComputeDistribution, Cancelled by the mask, DeviceLost.
  absl::Status ComputeDistribution(const TokenLogits& logits, absl::Span<const int32_t> timeline,
                                   Distribution* out);

 private:
  // The token that must come, or -1.
  int32_t Forced(const TokenSet* allowed) const;
  void StartGrammar();
  absl::string_view BytesOf(int32_t token) const;

  const EngineFacts* facts_;
  Sampler sampler_;
  grammar::Matcher matcher_;
  int64_t free_outputs_ = 0;
  // Allowed() of late, by the grammar's mask (null: all tokens) and whether turn and reasoning may
  // end.
  struct KnownSet {
    std::shared_ptr<const grammar::MaskBits> mask;
    bool may_end, may_end_thinking;
    std::shared_ptr<const TokenSet> set;
  };
  std::vector<KnownSet> known_sets_;
  size_t oldest_set_ = 0;
  TokenHistory history_;
  TokenMask mask_;
  std::vector<uint32_t> allowed_;  // scratch of the mask
  int64_t outputs_ = 0;
  // Outputs up to the end of the reasoning; kOpen until it has ended, 0 without reasoning.
  static constexpr int64_t kOpen = -1;
  int64_t reasoning_ = 0;
};

}  // namespace dsv4
