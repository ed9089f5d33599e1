// SPDX-License-Identifier: Apache-2.0
// POST /tokenize and /detokenize, in vLLM's form.
#pragma once

#include <string>

#include "examples/dsv4-server/common_request.h"

namespace server {

// Each throws an ApiError that names the field.
// Returns JSON as text, because an answer's tokens would take much more memory as values.
std::string Tokenize(const Model& model, const Json& body);
Json Detokenize(const Model& model, const Json& body);

}  // namespace server
