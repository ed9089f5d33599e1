// SPDX-License-Identifier: Apache-2.0
// JSON as text that is passed on unread: whether it is JSON at all, and how text becomes the inside
// of a string. Reading values is lib/io/json.h's and python_json.h's.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace dsv4 {

// Whether `text` is one JSON value by the grammar of RFC 8259, white space around it allowed. Any
// nesting, any size of number and unpaired surrogate escapes are within the grammar; NaN is not.
// Time and memory are linear. REQUIRES: `text` is UTF-8.
bool IsJson(absl::string_view text);

// Appends `text` escaped as json.dumps(ensure_ascii=False) does it, without the quotes around: the
// escapes of joined texts are the joined escapes.
void AppendJsonEscaped(absl::string_view text, std::string* out);

}  // namespace dsv4
