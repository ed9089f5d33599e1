// SPDX-License-Identifier: Apache-2.0
// The body of a POST to /v1/chat/completions.
#pragma once

#include <string>

#include "examples/dsv4-server/common_request.h"
#include "examples/dsv4-server/generation.h"

namespace server {

struct ChatRequest {
  CommonRequest common;
  Prompt prompt;
  bool log_probs = false;
  size_t top_log_probs = 0;
  bool no_calls = false;  // "tool_choice": "none"
  bool one_call = false;  // the turn ends with its first tool call
};

// Throws an ApiError that names the field.
ChatRequest ReadChat(const Model& model, const Json& body);

// The fields that say what the prompt is: messages, tools, response_format and thinking. Returns
// the messages as the library takes them.
Json ReadMessages(Fields* fields);
void AddToSystem(Json* messages, const char* key, Json value);
dsv4::ChatOptions ReadThinking(const Model& model, Fields* fields, int64_t* budget);

}  // namespace server
