// SPDX-License-Identifier: Apache-2.0
// The body of a POST to /v1/responses.
#pragma once

#include "examples/dsv4-server/common_request.h"
#include "examples/dsv4-server/generation.h"
#include "examples/dsv4-server/turn.h"

namespace server {

struct ResponsesRequest {
  CommonRequest common;
  Prompt prompt;
  TurnOptions turn;
  bool log_probs = false;        // of the tokens of the text
  size_t top_log_probs = 0;      // and of the most likely ones at each
  Json echoed = Json::object();  // members that the answer repeats
  bool store = false;            // the answer is kept
  Json input = Json::array();    // its items
  // Of the conversation, without instructions and before the answer. Its last one is the beginning
  // of the answer if `begun`.
  Json messages = Json::array();
  bool begun = false;
  // The session can be continued: its messages are these, after a system message or nothing.
  bool keeps_session = false;
};

// Throws an ApiError that names the field.
ResponsesRequest ReadResponses(const Model& model, const Json& body);

}  // namespace server
