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
};

// Throws an ApiError that names the field.
ResponsesRequest ReadResponses(const Model& model, const Json& body);

}  // namespace server
