// SPDX-License-Identifier: Apache-2.0
#include "lib/runtime/token_chooser.h"

#include <algorithm>

#include "lib/base/error.h"
#include "lib/base/status_macros.h"

namespace dsv4 {

TokenChooser::TokenChooser(const Engine& engine)
    : sampler_(engine.config().vocab_size, engine.token_limit(), engine.token_gaps()),
      history_(engine.config().vocab_size),
      allowed_(static_cast<size_t>(TokenMaskWords(engine.config().vocab_size))) {
  const absl::StatusOr<const Tokenizer*> tokenizer = engine.tokenizer();
  if (!tokenizer.ok()) return;
  think_ = (*tokenizer)->FindAddedToken("<think>").value_or(-1);
  think_end_ = (*tokenizer)->FindAddedToken("</think>").value_or(-1);
}

void TokenChooser::Reset(absl::Span<const int32_t> prompt) {
  history_.Reset(prompt);
  outputs_ = 0;
  const bool reasons = think_end_ >= 0 && !prompt.empty() && prompt.back() == think_;
  reasoning_ = reasons ? kOpen : 0;
}

void TokenChooser::Push(int32_t token) {
  history_.Push(token);
  if (reasoning_ == kOpen && token == think_end_) reasoning_ = outputs_ + 1;
  ++outputs_;
}

void TokenChooser::Pop(int32_t token) {
  history_.Pop(token);
  if (reasoning_ == outputs_) reasoning_ = kOpen;
  --outputs_;
}

int32_t TokenChooser::Forced() const {
  const int32_t forced = sampler_.ForcedToken(outputs_);
  if (forced >= 0) return forced;
  const int64_t budget = params().max_thinking_tokens;
  return budget > 0 && reasoning_ == kOpen && outputs_ >= budget ? think_end_ : -1;
}

// A mask is the caller's answer to a timeline that is not known before the token is chosen.
std::optional<CandidateRule> TokenChooser::Rule(double uniform) const {
  if (mask_.fn != nullptr) return std::nullopt;
  return sampler_.Rule(uniform);
}

absl::Status TokenChooser::Shape(const TokenLogits& logits, absl::Span<const int32_t> timeline,
                                 Distribution* out) {
  TokenRules rules{.forced = Forced()};
  if (mask_.fn != nullptr) {
    std::fill(allowed_.begin(), allowed_.end(), ~uint32_t{0});
    const int64_t prompt_tokens = static_cast<int64_t>(timeline.size()) - outputs_;
    if (!mask_.fn(mask_.user, timeline, prompt_tokens, absl::MakeSpan(allowed_))) {
      return Cancelled("the token mask's callback cancelled the step");
    }
    rules.allowed = allowed_;
  }
  if (const CandidateList* list = logits.candidates()) {
    return sampler_.ShapeListed(*list, rules, out);
  }
  DSV4_ASSIGN_OR_RETURN(const absl::Span<const float> all, logits.All());
  return sampler_.Shape(all, history_, rules, out);
}

}  // namespace dsv4
