// SPDX-License-Identifier: Apache-2.0
// Errors of requests, which handlers throw.
#pragma once

#include <string>

namespace server {

struct ApiError {
  int status;  // of HTTP
  std::string type, message;
  std::string param = {};  // the field at fault; empty: null
  std::string code = {};   // empty: null
};

// An invalid request: status 400.
ApiError InvalidRequest(const std::string& param, const std::string& message);
// The same with the message "FIELD WHAT": "tools must be a list".
ApiError InvalidField(const std::string& field, const std::string& what);

// The server is stopping or has lost its device: status 503, after which clients try again.
ApiError Stopping();
ApiError DeviceLost(const std::string& message);

// Called in a catch block: converts the exception. Errors of the library keep their message; the
// argument that they name becomes the field of the request.
ApiError CurrentApiError();

}  // namespace server
