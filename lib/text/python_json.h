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

// Parses one whole document as json.loads does with bytes: a byte order mark in front is passed
// over. Number texts may be "NaN", "Infinity" and
// "-Infinity"; an unpaired surrogate stands in a string as the three bytes that UTF-8 would give it
// (WTF-8, see unicode.h); a repeated key keeps its first place and its last value. Corrupt, as
// "SOURCE: line L, column C: REASON" (counted from 1, columns in bytes), for what json.loads
// refuses and for bytes that are not WTF-8. Unsupported, in the same form, for nesting beyond
// kMaxPythonJsonDepth.
absl::StatusOr<JsonValue> ParsePythonJson(absl::string_view text, absl::string_view source);

// Appends json.dumps(value, ensure_ascii=False).
void AppendPythonJson(const JsonValue& value, std::string* out);

// str(value) of a null, boolean, number or string; nullopt for an array or object.
std::optional<std::string> PythonStr(const JsonValue& value);

// bool(value): false for null, false, zero and what is empty.
bool PythonTruth(const JsonValue& value);

}  // namespace dsv4
