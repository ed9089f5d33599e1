// SPDX-License-Identifier: Apache-2.0
// Whether an answer is what a case of gates.json expects.
#pragma once

#include "absl/strings/string_view.h"
#include "lib/io/json.h"

namespace dsv4 {

// `answer` is the decoded text after the prompt, end of sentence included. `check` is "exact" (the
// content is the expected text), "json" (it parses to what the expected text parses to) or "tool"
// (its calls are the expected list of {name, arguments}). With `thinking` the content is what
// follows </think>.
bool AnswerPasses(absl::string_view answer, bool thinking, absl::string_view check,
                  const JsonValue& expected);

}  // namespace dsv4
