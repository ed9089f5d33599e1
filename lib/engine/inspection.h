// SPDX-License-Identifier: Apache-2.0
// Describes a model folder from its files' headers, for people.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace dsv4 {

// One JSON object: see dsv4_inspect in include/dsv4/engine.h. Errors: those of Engine::Plan with
// default options.
absl::StatusOr<std::string> InspectModel(const std::string& folder);

}  // namespace dsv4
