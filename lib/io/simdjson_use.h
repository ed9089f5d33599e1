// SPDX-License-Identifier: Apache-2.0
// How files of this folder use simdjson.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "simdjson.h"

namespace dsv4 {

// Makes simdjson use the best instructions of this processor, unless the host program has chosen
// already (the choice is global to the process). Otherwise simdjson would read the environment when
// it first parses, which this library must not do. Called before each parse; cheap. Any thread.
void ChooseJsonInstructions();

// The root of the document `text`. Lives until `parser` is used again or destroyed. Errors: Corrupt
// for invalid JSON ("`what` not valid JSON: ..."), OutOfHostMemory.
absl::StatusOr<simdjson::dom::element> ParseDom(simdjson::dom::parser& parser,
                                                absl::string_view text, absl::string_view what);

}  // namespace dsv4
