// SPDX-License-Identifier: Apache-2.0
// A model folder described for people: what lies in it, from the files' headers.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace dsv4 {

// One JSON object: see dsv4_inspect in include/dsv4/engine.h. Refuses what Engine::Plan refuses
// with default options.
absl::StatusOr<std::string> InspectModel(const std::string& folder);

}  // namespace dsv4
