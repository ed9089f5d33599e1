// SPDX-License-Identifier: Apache-2.0
#include "lib/sampling/params.h"

#include <cmath>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"

namespace dsv4 {
namespace {

absl::Status OutsideRange(absl::string_view field, double value, absl::string_view range) {
  return InvalidValue(field, " is ", value, "; expected ", range);
}

// Ranges are inclusive; NaN lies in none.
bool IsWithin(float value, float low, float high) { return value >= low && value <= high; }

absl::Status CheckToken(absl::string_view field, size_t index, int32_t token, int64_t vocab) {
  if (token >= 0 && token < vocab) return absl::OkStatus();
  return InvalidValue(absl::StrCat(field, "[", index, "]"), " is token ", token, "; expected 0 to ",
                      vocab - 1);
}

absl::Status CheckTokens(absl::string_view field, absl::Span<const int32_t> tokens, int64_t vocab) {
  for (size_t i = 0; i < tokens.size(); ++i)
    DSV4_RETURN_IF_ERROR(CheckToken(field, i, tokens[i], vocab));
  return absl::OkStatus();
}

absl::Status CheckPenalties(const SamplingParams& params) {
  if (params.repetition_penalty != 0 &&
      !IsWithin(params.repetition_penalty, kMinRepetitionPenalty, kMaxRepetitionPenalty))
    return InvalidValue("repetition_penalty", " is ", params.repetition_penalty,
                        "; expected 0 (off) or ", kMinRepetitionPenalty, " to ",
                        kMaxRepetitionPenalty);
  if (!IsWithin(params.presence_penalty, -kMaxCountPenalty, kMaxCountPenalty))
    return OutsideRange("presence_penalty", params.presence_penalty, "-2 to 2");
  if (!IsWithin(params.frequency_penalty, -kMaxCountPenalty, kMaxCountPenalty))
    return OutsideRange("frequency_penalty", params.frequency_penalty, "-2 to 2");
  return absl::OkStatus();
}

absl::Status CheckTokenLists(const SamplingParams& params, int64_t vocab) {
  for (size_t i = 0; i < params.logit_bias.size(); ++i) {
    const LogitBias& entry = params.logit_bias[i];
    DSV4_RETURN_IF_ERROR(CheckToken("logit_bias", i, entry.token, vocab));
    if (!IsWithin(entry.bias, -kMaxLogitBias, kMaxLogitBias))
      return InvalidValue(absl::StrCat("logit_bias[", i, "]"), " of token ", entry.token, " is ",
                          entry.bias, "; expected -100 to 100");
  }
  DSV4_RETURN_IF_ERROR(CheckTokens("banned_tokens", params.banned_tokens, vocab));
  DSV4_RETURN_IF_ERROR(CheckTokens("forced_tokens", params.forced_tokens, vocab));
  return CheckTokens("stop_tokens", params.stop_tokens, vocab);
}

}  // namespace

absl::Status ValidateSampling(const SamplingParams& params, int64_t vocab) {
  // Written so that NaN fails.
  if (!(params.temperature >= 0 && std::isfinite(params.temperature)))
    return OutsideRange("temperature", params.temperature, "0 (greedy) or more, finite");
  if (params.top_k < 0) return OutsideRange("top_k", params.top_k, "0 (all) or more");
  if (!IsWithin(params.top_p, 0, 1))
    return OutsideRange("top_p", params.top_p, "at most 1 and more than 0 (0 means 1)");
  if (!IsWithin(params.min_p, 0, 1)) return OutsideRange("min_p", params.min_p, "0 to 1");
  if (params.max_tokens < 0)
    return InvalidValue("max_tokens", " is ", params.max_tokens, "; expected 0 (no limit) or more");
  if (params.max_thinking_tokens < 0)
    return InvalidValue("max_thinking_tokens", " is ", params.max_thinking_tokens,
                        "; expected 0 (no limit) or more");
  if (params.log_probs < 0 || params.log_probs > kMaxLogProbs)
    return InvalidValue("log_probs", " is ", params.log_probs, "; expected 0 to ", kMaxLogProbs);
  if (params.draft_tokens < 0 || params.draft_tokens > kMaxDraftTokens)
    return InvalidValue("draft_tokens", " is ", params.draft_tokens, "; expected 0 to ",
                        kMaxDraftTokens);
  DSV4_RETURN_IF_ERROR(CheckPenalties(params));
  return CheckTokenLists(params, vocab);
}

}  // namespace dsv4
