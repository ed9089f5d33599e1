// SPDX-License-Identifier: Apache-2.0
// JSON as text: checks whether text is JSON, and escapes text for a JSON string. lib/io/json.h and
// python_json.h parse values.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace dsv4 {

// Whether `text` is one JSON value (RFC 8259), with optional white space around it. Accepts any
// nesting, numbers of any size and unpaired surrogate escapes, but not NaN. Time and memory are
// linear. REQUIRES: `text` is UTF-8.
bool IsJson(absl::string_view text);

// Appends `text`, escaped like json.dumps(ensure_ascii=False), without quotes. Pieces of a text can
// be escaped one after another.
void AppendJsonEscaped(absl::string_view text, std::string* out);

}  // namespace dsv4
