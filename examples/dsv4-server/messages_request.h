// SPDX-License-Identifier: Apache-2.0
// The body of a POST to Anthropic's /v1/messages.
#pragma once

#include "examples/dsv4-server/common_request.h"
#include "examples/dsv4-server/generation.h"
#include "examples/dsv4-server/turn.h"

namespace server {

struct MessagesRequest {
  CommonRequest common;
  Prompt prompt;
  TurnOptions turn;
};

// Both throw an ApiError that names the field.
MessagesRequest ReadMessagesApi(const Model& model, const Json& body);
// POST /v1/messages/count_tokens.
Json CountTokens(const Model& model, const Json& body);

}  // namespace server
