// SPDX-License-Identifier: Apache-2.0
// The answer to a POST to /v1/chat/completions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/dsv4-server/answer.h"
#include "examples/dsv4-server/chat_request.h"

namespace server {

class ChatAnswer : public Answer {
 public:
  ChatAnswer(const Model& model, ChatRequest request, Identity* identity);

  std::vector<Candidate> candidates() const override;
  bool stream() const override { return request_.common.stream; }
  // The role.
  std::string Begin(const dsv4::SessionStats& stats) override;
  std::string Take(size_t candidate, const Token& token, const dsv4::SessionStats& stats) override;
  bool ended(size_t candidate) const override { return choices_[candidate].turn.ended(); }
  std::string End(const dsv4::SessionStats& stats) override;
  std::string Failure(const ApiError& error) override;
  Json Whole(const dsv4::SessionStats& stats) override;

 private:
  struct Choice {
    Turn turn;
    Json log_probs = Json::array();
  };

  Json Object(const char* kind) const;
  Json Chunk(size_t candidate, Json delta, Json log_probs) const;
  Json LogProbs(const Token& token) const;
  Json MessageOf(const Turn& turn) const;
  Json FinishOf(const Turn& turn) const;
  Json Usage(const dsv4::SessionStats& stats) const;

  const Model& model_;
  const ChatRequest request_;
  const std::string id_;
  const int64_t created_;
  std::vector<Choice> choices_;
};

}  // namespace server
