// SPDX-License-Identifier: Apache-2.0
// The body of a POST to /v1/chat/completions.
#pragma once

#include <string>

#include "examples/dsv4-server/common_request.h"
#include "examples/dsv4-server/generation.h"
#include "examples/dsv4-server/turn.h"

namespace server {

struct ChatRequest {
  CommonRequest common;
  Prompt prompt;
  bool log_probs = false;
  size_t top_log_probs = 0;
  TurnOptions turn;
};

// Throws an ApiError that names the field.
ChatRequest ReadChat(const Model& model, const Json& body);

// The messages in the library's form. *begun: the last one is the beginning of the answer.
Json ReadMessages(Fields* fields, bool* begun);
// Reads the fields about thinking. Sets *budget if the request has one, and *hidden if the answer
// is to go without its reasoning.
dsv4::ChatOptions ReadThinking(const Model& model, Fields* fields, int64_t* budget, bool* hidden);

}  // namespace server
