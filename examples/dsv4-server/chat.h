// SPDX-License-Identifier: Apache-2.0
// What is answered to a POST to /v1/chat/completions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/dsv4-server/chat_request.h"

namespace server {

// Takes the tokens of one turn, and gives it whole or by chunks.
class ChatAnswer {
 public:
  ChatAnswer(const Model& model, const ChatRequest& request);

  // The role, before the first token.
  Json FirstChunk() const;
  // Takes a token and returns its chunk.
  Json Take(const Token& token, const dsv4::SessionStats& stats);
  // The turn has ended, with this token or before.
  bool ended() const { return !finish_reason_.empty(); }
  // The chunk with the usage, which has no choices.
  Json LastChunk(const dsv4::SessionStats& stats) const;
  // All that was taken, as one answer.
  Json Whole(const dsv4::SessionStats& stats) const;

 private:
  struct Call {
    std::string id, name, arguments;
    bool whole;
  };

  Json Object(const char* kind) const;
  Json Chunk(Json delta, Json log_probs) const;
  void Add(const dsv4::Event& event, Json* delta);
  Json LogProbsOf(const Token& token) const;
  Json LogProbOf(int32_t token, float log_prob) const;
  Json Usage(const dsv4::SessionStats& stats) const;

  const Model& model_;
  const bool log_probs_, no_calls_, one_call_, continuous_usage_;
  const size_t top_log_probs_;
  const std::string id_;
  const int64_t created_;

  std::string content_, reasoning_, finish_reason_;
  std::vector<Call> calls_;
  Json all_log_probs_ = Json::array();
  int64_t tokens_ = 0, reasoning_tokens_ = 0;
  bool reasons_;  // the reasoning goes on
};

}  // namespace server
