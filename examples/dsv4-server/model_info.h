// SPDX-License-Identifier: Apache-2.0
// The model's names, and what clients ask about it without generating.
#pragma once

#include <string>
#include <string_view>

#include "examples/dsv4-server/common_request.h"

namespace server {

// The name of the model in `folder`, which may be a GGUF file: "OWNER/NAME" in the cache of the
// Hugging Face hub, else the last part of the path.
std::string NameOfFolder(const std::string& folder);
// GET /v1/models: the model by its name and by each alias.
Json ListModels(const Model& model);
// GET /v1/models/NAME. `name` as in the path, where it may be percent-encoded. Throws an ApiError
// with status 404.
Json DescribeModel(const Model& model, std::string_view name);
// GET /tokenizer_info: the special tokens, as clients need them that tokenize by requests.
Json TokenizerInfo(const Model& model);

}  // namespace server
