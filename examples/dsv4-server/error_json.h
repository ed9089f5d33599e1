// SPDX-License-Identifier: Apache-2.0
// Errors as JSON for clients.
#pragma once

#include "examples/dsv4-server/api_error.h"
#include "examples/dsv4-server/json.h"

namespace server {

// In the form of OpenAI's API.
Json JsonOf(const ApiError& error);
// In the form of Anthropic's API.
Json AnthropicJsonOf(const ApiError& error);

}  // namespace server
