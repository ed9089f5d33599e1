// SPDX-License-Identifier: Apache-2.0
// The answer to a POST to Anthropic's /v1/messages.
#pragma once

#include <string>
#include <vector>

#include "examples/dsv4-server/answer.h"
#include "examples/dsv4-server/messages_request.h"

namespace server {

class MessagesAnswer : public Answer {
 public:
  MessagesAnswer(const Model& model, MessagesRequest request, Identity* identity);

  std::vector<Candidate> candidates() const override {
    return {{&request_.prompt, request_.prompt.sampling.seed}};
  }
  bool stream() const override { return request_.common.stream; }
  std::string Begin(const dsv4::SessionStats& stats) override;
  std::string Take(size_t candidate, const Token& token, const dsv4::SessionStats& stats) override;
  bool ended(size_t) const override { return turn_.ended(); }
  std::string End(const dsv4::SessionStats& stats) override;
  std::string Failure(const ApiError& error) override;
  Json Whole(const dsv4::SessionStats& stats) override;

 private:
  Json Message(const dsv4::SessionStats& stats) const;
  Json Usage(const dsv4::SessionStats& stats) const;
  // {"stop_reason", "stop_sequence"}
  Json Stop() const;
  std::string EndBlock(size_t index) const;

  const Model& model_;
  const MessagesRequest request_;
  const std::string id_;
  Turn turn_;
};

}  // namespace server
