// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/log_probs.h"

#include <algorithm>
#include <utility>

namespace server {
namespace {

Json LogProbOf(const Model& model, int32_t token, float log_prob) {
  const dsv4::TokenizerView tokenizer = model.engine.tokenizer();
  Json bytes = Json::array();
  for (const char c : tokenizer.TokenBytes(token)) bytes.push_back(static_cast<uint8_t>(c));
  return {{"token", tokenizer.Decode({&token, 1})},
          {"logprob", JsonLogProb(log_prob)},
          {"bytes", std::move(bytes)}};
}

}  // namespace

Json LogProbsOf(const Model& model, const Token& token, size_t count) {
  Json entry = LogProbOf(model, token.id, token.log_probs->log_prob);
  Json top = Json::array();
  const auto& likely = token.log_probs->top;
  for (size_t i = 0; i < std::min(likely.size(), count); ++i)
    top.push_back(LogProbOf(model, likely[i].token, likely[i].log_prob));
  entry["top_logprobs"] = std::move(top);
  return entry;
}

}  // namespace server
