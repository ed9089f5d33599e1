// SPDX-License-Identifier: Apache-2.0
// Sampling parameters and their ranges. sampler.h applies them. lib/text/stop_strings.h checks stop
// strings.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace dsv4 {

namespace grammar {
class Grammar;
}

inline constexpr float kMinRepetitionPenalty = 0.01f, kMaxRepetitionPenalty = 100;
inline constexpr float kMaxCountPenalty = 2;  // presence and frequency: -2 to 2
inline constexpr float kMaxLogitBias = 100;   // -100 to 100
inline constexpr int32_t kMaxLogProbs = 20;
inline constexpr int32_t kMaxDraftTokens = 7;

struct LogitBias {
  int32_t token;
  float bias;
};

struct SamplingParams {
  float temperature = 0;  // 0 = greedy
  int32_t top_k = 0;      // 0 = all
  float top_p = 0;        // 0 = 1
  float min_p = 0;
  uint64_t seed = 0;
  int64_t max_tokens = 0;  // 0 = no limit

  // Divides positive logits and multiplies negative ones, for tokens of the prompt and the output.
  // 0 or 1 = off.
  float repetition_penalty = 0;
  // Subtracted from the logits of tokens of the output: once, and once per occurrence.
  float presence_penalty = 0, frequency_penalty = 0;
  std::vector<LogitBias> logit_bias{};   // added to logits; several of one token add up
  std::vector<int32_t> banned_tokens{};  // never chosen
  std::vector<int32_t> forced_tokens{};  // the output begins with these

  // If the prompt opens the reasoning, </think> is forced after so many tokens; 0 = no limit.
  // Applied by the runtime.
  int64_t max_thinking_tokens = 0;

  // The grammar of the output; null = none. Applied by the runtime.
  std::shared_ptr<const grammar::Grammar> grammar{};

  // Each ends the turn.
  std::vector<int32_t> stop_tokens{};
  std::vector<std::string> stop_strings{};

  int32_t log_probs = 0;     // so many of the most likely tokens are reported with each token
  int32_t draft_tokens = 0;  // speculation: drafts per forward, 0 = off
};

// Errors: InvalidArgument, naming the field and its range. Token ids must be below `vocab`.
absl::Status ValidateSampling(const SamplingParams& params, int64_t vocab);

}  // namespace dsv4
