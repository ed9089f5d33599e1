// SPDX-License-Identifier: Apache-2.0
// One row of logits becomes the distribution that the next token, or a draft of it, is drawn from.
// A function of logits, parameters, history and rules alone: the sampler's memory is scratch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/op/token_candidates.h"
#include "lib/sampling/distribution.h"
#include "lib/sampling/params.h"
#include "lib/sampling/token_history.h"

namespace dsv4 {

// 32 tokens a word: token t is bit t % 32 of word t / 32.
inline constexpr int64_t TokenMaskWords(int64_t vocab) { return (vocab + 31) / 32; }

// The mask of tokens that have text: ids below `token_limit` but `gaps`, which lie below it.
std::vector<uint32_t> MaskOfText(int64_t vocab, int32_t token_limit,
                                 absl::Span<const int32_t> gaps);

// What holds at one position only.
struct TokenRules {
  absl::Span<const uint32_t>
      allowed{};        // [TokenMaskWords(vocab)] tokens that may come; empty = all
  int32_t forced = -1;  // this one must come
};

// One session's. One thread at a time; nothing allocates but the constructor and SetParams.
class Sampler {
 public:
  // Ids from `token_limit` on and those of `gaps` have no text and are never chosen.
  // REQUIRES: 0 <= token_limit <= vocab; gaps lie below it.
  Sampler(int64_t vocab, int32_t token_limit, absl::Span<const int32_t> gaps);

  // Takes `params`, greedy before. InvalidArgument as ValidateSampling, or for a forced token that
  // is banned or has no text; the parameters are then as before.
  absl::Status SetParams(const SamplingParams& params);
  const SamplingParams& params() const { return params_; }
  // The parameters with another grammar.
  void set_grammar(std::shared_ptr<const grammar::Grammar> grammar) {
    params_.grammar = std::move(grammar);
  }

  // The token that params().forced_tokens demands after `outputs` tokens of output, or -1.
  int32_t ForcedToken(int64_t outputs) const;

  // Which candidates of a row of logits are enough for ComputeFromCandidates; none where all are
  // needed. At positions without a mask of TokenRules. `uniform`: the number that Draw will be
  // given.
  std::optional<CandidateRule> Rule(double uniform) const;
  // Tokens with text that are not banned; empty: all with text. Its id is another one after each
  // SetParams, and for each sampler of the process.
  absl::Span<const uint32_t> choosable() const {
    return params_.banned_tokens.empty() ? absl::Span<const uint32_t>() : choosable_;
  }
  uint64_t choosable_id() const { return choosable_id_; }
  // Removes from `mask` [TokenMaskWords(vocab)] what is banned or has no text.
  void KeepChoosable(absl::Span<uint32_t> mask) const;
  // An id that no mask of the process has, as choosable_id() is one.
  static uint64_t NewMaskId();
  // ComputeDistribution of the row whose candidates, by the parameters' Rule among the tokens that
  // may come, are `list`. Where the rule was kDraw, the token drawn is certain.
  absl::Status ComputeFromCandidates(const CandidateList& list, const TokenRules& rules,
                                     Distribution* out);

  // Computes *out from logits [vocab], in this order: penalties (repetition, then frequency and
  // presence), bias, bans and `rules`, temperature, top-k, top-p (of what top-k left), min-p. At
  // temperature 0 it is the argmax alone. Ties go to the lowest id. What is less likely than 2^-33
  // of the most likely one has no chance. A forced token is certain, whatever its logit. Logits
  // that are not finite are never chosen. REQUIRES: *out has room for vocab. InvalidArgument when
  // bans and rules leave no token, and for a mask of a wrong size; Internal when no logit of those
  // left is finite. *out is unspecified after an error.
  absl::Status ComputeDistribution(absl::Span<const float> logits, const TokenHistory& history,
                                   const TokenRules& rules, Distribution* out);

 private:
  // The logits with penalties and bias: `logits` themselves where there are none.
  absl::Span<const float> Adjust(absl::Span<const float> logits, const TokenHistory& history);
  // Both return false when no logit of those left is finite.
  bool SetArgmax(absl::Span<const float> logits, absl::Span<const uint32_t> allowed,
                 Distribution* out) const;
  bool SetSampled(absl::Span<const float> logits, absl::Span<const uint32_t> allowed,
                  Distribution* out);
  // Temperature and what follows it, of candidates in token order whose weights are still logits;
  // the mass of all tokens is their own where it is not given.
  void FilterCandidates(float best_logit, std::optional<double> mass,
                        std::vector<Candidate>* candidates);
  absl::Status CheckRules(const TokenRules& rules) const;
  bool adjusts() const;  // penalties or bias change logits
  absl::Status NothingToChoose(const TokenRules& rules) const;

  int64_t vocab_;
  std::vector<uint32_t> with_text_;  // mask
  std::vector<uint32_t> choosable_;  // mask: with text and not banned
  uint64_t choosable_id_ = 0;
  SamplingParams params_;
  std::vector<float> adjusted_;      // [vocab] scratch
  std::vector<double> bin_measure_;  // scratch of the selections
};

}  // namespace dsv4
