// SPDX-License-Identifier: Apache-2.0
// JSON as Python's json module reads and writes it, because the family's prompts were made with it.
// json.loads accepts NaN, Infinity and unpaired surrogate escapes; json.dumps(ensure_ascii=False)
// has its own spacing and number format. lib/io/json.h is strict.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/io/json.h"

namespace dsv4 {

// Deepest nesting of arrays and objects. Python's own limit is near, but not fixed.
inline constexpr int kMaxPythonJsonDepth = 990;
// Python reads no longer integer.
inline constexpr int kMaxPythonIntegerDigits = 4300;

// Reads one whole document as json.loads does with bytes: ReadJson of that dialect.
absl::StatusOr<JsonValue> ParsePythonJson(absl::string_view text, absl::string_view source);

// Appends `text`, escaped like json.dumps(ensure_ascii=False), without quotes. Pieces of a text can
// be escaped one after another.
void AppendJsonEscaped(absl::string_view text, std::string* out);

// Appends json.dumps(value, ensure_ascii=False).
void AppendPythonJson(const JsonValue& value, std::string* out);

// Whether `text` is one JSON value (RFC 8259), with optional white space around it. Accepts any
// nesting, numbers of any size and unpaired surrogate escapes, but not NaN. Time and memory are
// linear. REQUIRES: `text` is UTF-8.
bool IsJson(absl::string_view text);

// str(value) of a null, boolean, number or string; nullopt for an array or object.
std::optional<std::string> PythonStr(const JsonValue& value);

// bool(value): false for null, false, zero and what is empty.
bool PythonTruth(const JsonValue& value);

}  // namespace dsv4
