// SPDX-License-Identifier: Apache-2.0
// Computes the distribution of the next token, or of a draft of it, from a row of logits. The
// result depends only on logits, parameters, history and rules.
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

// The mask of tokens that have text: ids below `token_limit`, except `gaps`.
std::vector<uint32_t> MaskOfText(int64_t vocab, int32_t token_limit,
                                 absl::Span<const int32_t> gaps);

// Rules for one position.
struct TokenRules {
  absl::Span<const uint32_t> allowed{};  // [TokenMaskWords(vocab)] the allowed tokens; empty = all
  int32_t forced = -1;                   // the forced token; -1 = none
};

// The sampler of one session. One thread at a time. Only the constructor and SetParams allocate.
class Sampler {
 public:
  // Ids from `token_limit` on and ids in `gaps` have no text and are never chosen.
  // REQUIRES: 0 <= token_limit <= vocab; gaps lie below it.
  Sampler(int64_t vocab, int32_t token_limit, absl::Span<const int32_t> gaps);

  // Sets the parameters; initially greedy. Errors, which change nothing: those of ValidateSampling;
  // InvalidArgument for a forced token that is banned or has no text.
  absl::Status SetParams(const SamplingParams& params);
  const SamplingParams& params() const { return params_; }
  // Replaces the grammar.
  void set_grammar(std::shared_ptr<const grammar::Grammar> grammar) {
    params_.grammar = std::move(grammar);
  }

  // The forced token after `outputs` tokens of output (params().forced_tokens), or -1.
  int32_t ForcedToken(int64_t outputs) const;

  // The candidates of a row of logits that suffice for ComputeFromCandidates; nullopt if all are
  // needed. For positions without a mask of TokenRules. `uniform`: the number for Draw.
  std::optional<CandidateRule> Rule(double uniform) const;
  // The mask of tokens with text that are not banned; empty: all tokens with text. Its id changes
  // with each SetParams and differs between samplers of the process.
  absl::Span<const uint32_t> choosable() const {
    return params_.banned_tokens.empty() ? absl::Span<const uint32_t>() : choosable_;
  }
  uint64_t choosable_id() const { return choosable_id_; }
  // Removes tokens that are banned or have no text from `mask` [TokenMaskWords(vocab)].
  void KeepChoosable(absl::Span<uint32_t> mask) const;
  // A new id for a mask, different from all ids in the process, including choosable_id().
  static uint64_t NewMaskId();
  // ComputeDistribution from the candidates `list` of a row, which the parameters' rule selected
  // from the allowed tokens. If the rule was kDraw, the drawn token has probability 1.
  absl::Status ComputeFromCandidates(const CandidateList& list, const TokenRules& rules,
                                     Distribution* out);

  // Computes *out from logits [vocab].
  // - Order: penalties (repetition, then frequency and presence), bias, bans and `rules`,
  //   temperature, top-k, top-p (over the tokens that top-k kept), min-p.
  // - Temperature 0: only the argmax. Ties go to the lowest id.
  // - Tokens below 2^-33 of the highest probability get probability 0.
  // - A forced token gets probability 1, whatever its logit.
  // - Logits that are not finite are never chosen.
  // REQUIRES: *out has room for vocab. Errors: InvalidArgument if bans and rules leave no token,
  // and for a mask of a wrong size; Internal if no remaining logit is finite. *out is then
  // undefined.
  absl::Status ComputeDistribution(absl::Span<const float> logits, const TokenHistory& history,
                                   const TokenRules& rules, Distribution* out);

 private:
  // The logits with penalties and bias; `logits` itself without these.
  absl::Span<const float> Adjust(absl::Span<const float> logits, const TokenHistory& history);
  // Both return false if no remaining logit is finite.
  bool SetArgmax(absl::Span<const float> logits, absl::Span<const uint32_t> allowed,
                 Distribution* out) const;
  bool SetSampled(absl::Span<const float> logits, absl::Span<const uint32_t> allowed,
                  Distribution* out);
  // Applies temperature and the steps after it to candidates in token order, whose weights are
  // still logits. `mass`: that of all tokens; by default the candidates'.
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
