// SPDX-License-Identifier: Apache-2.0
// POST /tokenize and /detokenize, in vLLM's form.
#pragma once

#include "examples/dsv4-server/common_request.h"

namespace server {

// Each throws an ApiError that names the field.
Json Tokenize(const Model& model, const Json& body);
Json Detokenize(const Model& model, const Json& body);

}  // namespace server
