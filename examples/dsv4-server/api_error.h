// SPDX-License-Identifier: Apache-2.0
// Errors in the forms of OpenAI's and Anthropic's API.
#pragma once

#include <string>

#include "examples/dsv4-server/json.h"

namespace server {

struct ApiError {
  int status;  // of HTTP
  std::string type, message;
  std::string param = {};  // the field at fault; empty: null
  std::string code = {};   // empty: null
};

// A request that cannot be answered as it is: status 400.
ApiError InvalidRequest(const std::string& param, const std::string& message);

// The server ends, or has lost its device: status 503, after which clients try again.
ApiError Stopping();
ApiError DeviceLost(const std::string& message);

// Within a catch block: what was thrown there. Errors of the library keep their message; the
// argument that they name becomes the field of the request.
ApiError CurrentApiError();

Json JsonOf(const ApiError& error);
// In the form of Anthropic's API.
Json AnthropicJsonOf(const ApiError& error);

}  // namespace server
