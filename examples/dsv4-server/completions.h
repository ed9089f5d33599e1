// SPDX-License-Identifier: Apache-2.0
// POST /v1/completions: text that the model continues, without the form of a conversation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "examples/dsv4-server/answer.h"
#include "examples/dsv4-server/common_request.h"
#include "examples/dsv4-server/generation.h"

namespace server {

struct CompletionRequest {
  struct Entry {
    Prompt prompt;
    std::string text;  // of echo
  };

  CommonRequest common;
  std::vector<Entry> prompts;  // one or more; each gets common.count candidates
  bool echo = false;
  bool no_tokens = false;                // only the prompt: max_tokens 0
  std::optional<size_t> log_probs = {};  // so many of the most likely tokens
};

// Throws an ApiError that names the field.
CompletionRequest ReadCompletion(const Model& model, const Json& body);

// The tokens of a client's prompt. Markers in the text are control tokens. `begin`: with the
// begin-of-sentence token.
std::vector<int32_t> PromptTokens(const Model& model, const std::string& text, bool begin);

class CompletionAnswer : public Answer {
 public:
  CompletionAnswer(const Model& model, CompletionRequest request, Identity* identity);

  std::vector<Candidate> candidates() const override;
  bool stream() const override { return request_.common.stream; }
  std::string Begin(const dsv4::SessionStats&) override { return ""; }
  std::string Take(size_t candidate, const Token& token, const dsv4::SessionStats& stats) override;
  bool ended(size_t candidate) const override {
    return choices_[candidate].finish != DSV4_FINISH_NONE;
  }
  std::string End(const dsv4::SessionStats& stats) override;
  std::string Failure(const ApiError& error) override;
  Json Whole(const dsv4::SessionStats& stats) override;

 private:
  struct LogProbLists {
    Json tokens = Json::array(), values = Json::array(), top = Json::array(),
         offsets = Json::array();
  };
  struct Choice {
    std::string text = {};
    LogProbLists lists = {};
    std::vector<int32_t> tokens = {};
    int64_t offset = 0;  // in code points
    dsv4_finish finish = DSV4_FINISH_NONE;
  };

  Json Object(Json choices) const;
  Json ChoiceOf(size_t candidate, std::string text, const LogProbLists& log_probs) const;
  Json Usage(const dsv4::SessionStats& stats) const;
  // The first token of a prompt has no log-probabilities: null.
  void AddLogProbs(int32_t token, const dsv4::LogProbs* log_probs, Choice* choice,
                   LogProbLists* lists) const;
  std::string TextOf(int32_t token) const;

  const Model& model_;
  const CompletionRequest request_;
  const std::string id_;
  const int64_t created_;
  std::vector<Choice> choices_;
};

}  // namespace server
