// SPDX-License-Identifier: Apache-2.0
// The configuration of a drafter that does not lie in the model's folder.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "lib/config/config.h"

namespace dsv4 {

// Reads that of the folder or GGUF file `path` and gives `config`, the model's, what belongs to the
// drafter. Errors: those of reading it; InvalidArgument, naming the key and both values, if the
// drafter was made for another model.
absl::Status AddDrafterConfig(const std::string& path, ModelConfig* config);

}  // namespace dsv4
