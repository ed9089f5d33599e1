// SPDX-License-Identifier: Apache-2.0
// The assistant's turn, received token by token: its parts in order, for any API.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "examples/dsv4-server/common_request.h"
#include "examples/dsv4-server/generation.h"

namespace server {

struct TurnOptions {
  bool thinks = false;           // the turn begins with reasoning
  bool no_calls = false;         // tool calls are left out
  bool one_call = false;         // the turn ends with its first tool call
  bool hides_reasoning = false;  // the answer goes without its reasoning
};

class Turn {
 public:
  enum class Kind { kReasoning, kText, kCall };
  struct Part {
    Kind kind = Kind::kText;
    std::string text;      // of a call: its arguments
    std::string id, name;  // of a call; no other answer has the id
    size_t call = 0;       // number of a call
    bool whole = false;    // of a call: it is complete
  };
  // The text that a token adds to a part.
  struct Piece {
    size_t part;  // of parts()
    bool begins;  // the part is new
    std::string text;
  };

  // `new_call_id`: called for each call.
  Turn(const TurnOptions& options, std::function<std::string()> new_call_id)
      : options_(options), new_call_id_(std::move(new_call_id)), reasons_(options.thinks) {}

  std::vector<Piece> Take(const Token& token);

  bool ended() const { return finish_ != DSV4_FINISH_NONE; }
  dsv4_finish finish() const { return finish_; }
  const std::vector<Part>& parts() const { return parts_; }
  // The texts of all parts of one kind.
  std::string Text(Kind kind) const;
  int64_t tokens() const { return static_cast<int64_t>(tokens_.size()); }
  const std::vector<int32_t>& token_ids() const { return tokens_; }
  int64_t reasoning_tokens() const { return reasoning_tokens_; }
  // The stop string that ended the turn; "" if it ended otherwise.
  std::string StopString(const Model& model, const std::vector<std::string>& strings) const;

 private:
  void Add(Kind kind, const dsv4::Event& event, std::vector<Piece>* pieces);

  const TurnOptions options_;
  const std::function<std::string()> new_call_id_;
  std::vector<Part> parts_;
  std::vector<int32_t> tokens_;
  int64_t reasoning_tokens_ = 0;
  dsv4_finish finish_ = DSV4_FINISH_NONE;
  bool reasons_;  // the reasoning has not ended
};

}  // namespace server
