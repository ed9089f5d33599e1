// SPDX-License-Identifier: Apache-2.0
// The answer to a POST to /v1/responses.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/dsv4-server/answer.h"
#include "examples/dsv4-server/responses_request.h"

namespace server {

class ResponsesAnswer : public Answer {
 public:
  ResponsesAnswer(const Model& model, ResponsesRequest request, Identity* identity);

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
  // Appends an event, with its number, to events_.
  void Event(const std::string& type, Json members);
  // The same about a part's item.
  void ItemEvent(const std::string& type, size_t part, Json members);
  void BeginItem(size_t part);
  void EndItem(size_t part);
  // `begun`: the item at its beginning, without content.
  Json Item(size_t part, bool begun) const;
  Json Finished(const dsv4::SessionStats& stats);
  Json InputItems();
  Json Conversation() const;
  Json Response(const char* status, const dsv4::SessionStats* stats) const;
  const char* Status() const;
  bool Cut(size_t part) const;
  // The log-probabilities of the tokens of the piece. They are added to those of its part.
  Json TakeLogProbs(const Turn::Piece& piece);

  const Model& model_;
  ResponsesRequest request_;
  const std::string id_;
  const int64_t created_;
  Turn turn_;
  Identity* const identity_;
  std::vector<std::string> item_ids_;       // of parts
  std::vector<Json> log_probs_;             // of parts
  Json waiting_log_probs_ = Json::array();  // of tokens whose text is still to come
  std::string events_;                      // that are to be sent
  int64_t event_count_ = 0;
};

}  // namespace server
