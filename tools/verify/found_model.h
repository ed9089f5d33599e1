// SPDX-License-Identifier: Apache-2.0
// The model that a command's argument names.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace dsv4 {

// The path to open for a folder, a GGUF file, or OWNER/NAME in the hub's local cache, as the other
// programs take them (examples/console/hub_models.h). Errors: NotFound, with the command that
// downloads the model.
absl::StatusOr<std::string> FoundModel(const std::string& given);

}  // namespace dsv4
