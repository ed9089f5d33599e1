// SPDX-License-Identifier: Apache-2.0
// POST /v1/completions: text that the model continues, without the form of a conversation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "examples/dsv4-server/common_request.h"
#include "examples/dsv4-server/generation.h"

namespace server {

struct CompletionRequest {
  CommonRequest common;
  Prompt prompt;
  std::string prompt_text;  // of echo
  bool echo = false;
  bool no_tokens = false;                // the prompt alone: max_tokens 0
  std::optional<size_t> log_probs = {};  // so many of the most likely tokens
};

// Throws an ApiError that names the field.
CompletionRequest ReadCompletion(const Model& model, const Json& body);

// The tokens of a text that a client wrote as a prompt: markers in it are control tokens.
// `begin`: after the begin-of-sentence token.
std::vector<int32_t> PromptTokens(const Model& model, const std::string& text, bool begin);

// Takes the tokens of one completion, and gives it whole or by chunks. As ChatAnswer.
class CompletionAnswer {
 public:
  CompletionAnswer(const Model& model, const CompletionRequest& request);

  Json Take(const Token& token, const dsv4::SessionStats& stats);
  bool ended() const { return !finish_reason_.empty(); }
  Json LastChunk(const dsv4::SessionStats& stats) const;
  Json Whole(const dsv4::SessionStats& stats) const;

 private:
  struct LogProbLists {
    Json tokens = Json::array(), values = Json::array(), top = Json::array(),
         offsets = Json::array();
  };

  Json Object(Json choices) const;
  Json Choice(std::string text, const LogProbLists& log_probs) const;
  Json Usage(const dsv4::SessionStats& stats) const;
  void AddLogProbs(int32_t token, const dsv4::LogProbs* log_probs, LogProbLists* lists);
  std::string TextOf(int32_t token) const;

  const Model& model_;
  const CompletionRequest& request_;
  const std::string id_;
  const int64_t created_;

  std::string text_, finish_reason_;
  LogProbLists all_;
  int64_t tokens_ = 0;
  int64_t offset_ = 0;  // in code points
};

}  // namespace server
