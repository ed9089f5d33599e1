// SPDX-License-Identifier: Apache-2.0
// How files of this folder use simdjson.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "simdjson.h"

namespace dsv4 {

// Has simdjson take the best instructions that this processor has, unless the program has chosen
// already (its choice is one for the whole process). Left to itself it asks the environment the
// first time it parses, which a library inside somebody's program must not do. Before anything is
// parsed. Any thread, cheap.
void ChooseJsonInstructions();

// The root of the document `text`, which lives as long as `parser` holds it. Corrupt for what is
// not JSON ("`what` not valid JSON: ..."), OutOfHostMemory where the parser gets none.
absl::StatusOr<simdjson::dom::element> ParseDom(simdjson::dom::parser& parser,
                                                absl::string_view text, absl::string_view what);

}  // namespace dsv4
