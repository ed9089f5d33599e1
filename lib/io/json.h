// SPDX-License-Identifier: Apache-2.0
// A JSON document as an owning tree. For documents whose key order and number text matter, or whose
// keys are not known in advance. Documents are untrusted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace dsv4 {

struct JsonMember;

// One value. Accessors return views into the value, which live until it changes.
class JsonValue {
 public:
  // In the order of the alternatives of data_.
  enum class Kind { kNull, kBool, kNumber, kString, kArray, kObject };

  JsonValue() = default;  // null

  // Copies and destruction need the same small stack for any depth of nesting.
  JsonValue(const JsonValue& other);
  JsonValue(JsonValue&&) noexcept = default;
  JsonValue& operator=(JsonValue other) noexcept;
  ~JsonValue();

  // REQUIRES: UTF-8; a number's text is a JSON number, object keys are unique. Readers of a dialect
  // document their exceptions.
  static JsonValue FromBool(bool value);
  static JsonValue FromNumberText(std::string text);
  static JsonValue FromString(std::string text);
  static JsonValue FromArray(std::vector<JsonValue> items);
  static JsonValue FromObject(std::vector<JsonMember> members);

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  absl::string_view KindName() const;  // "null", "boolean", "number", "string", "array", "object"
  bool IsNull() const { return kind() == Kind::kNull; }

  // Null or nullopt when the value is of another kind.
  std::optional<bool> AsBool() const;
  const std::string* AsString() const;      // UTF-8, escapes resolved; may contain NUL
  const std::string* AsNumberText() const;  // as written in the document
  std::optional<int64_t> AsInt64() const;   // also nullopt for a fraction, an exponent, an overflow
  const std::vector<JsonValue>* AsArray() const;
  const std::vector<JsonMember>* AsObject() const;  // in document order, keys unique

  // Value of an object's key; null when it is absent or this is no object. Linear in the members.
  const JsonValue* Find(absl::string_view key) const;

 private:
  // The last value within a container; null for one that is empty, and for a scalar.
  JsonValue* Last();
  void DropLast();

  struct Number {
    std::string text;
  };
  using Data = std::variant<std::monostate, bool, Number, std::string, std::vector<JsonValue>,
                            std::vector<JsonMember>>;
  explicit JsonValue(Data data);

  Data data_;
};

struct JsonMember {
  std::string key;
  JsonValue value;
};

// Editors on Windows write it in front of a text. JSON readers pass over one.
inline constexpr absl::string_view kUtf8ByteOrderMark = "\xEF\xBB\xBF";

// Deepest nesting of arrays and objects in files.
inline constexpr int kMaxJsonDepth = 200;

// What a reader takes. The defaults are those of RFC 8259.
struct JsonDialect {
  // Also unpaired surrogates: escaped, and as the three bytes that UTF-8 would give them (WTF-8,
  // see lib/base/utf8.h), which they become in the value.
  bool surrogates = false;
  bool non_finite = false;        // also NaN, Infinity and -Infinity, as the text of a number
  size_t max_integer_digits = 0;  // 0: any
  size_t max_depth = kMaxJsonDepth;
};

// Reads one whole document, with or without a byte order mark. A key that an object repeats keeps
// its first place and its last value, as in Python's json. Needs little stack for any depth.
// Errors, as "SOURCE: line L, column C: REASON" (counted from 1, columns in bytes): Corrupt for
// what the dialect does not take; Unsupported for deeper nesting.
absl::StatusOr<JsonValue> ReadJson(absl::string_view text, absl::string_view source,
                                   const JsonDialect& dialect);

// ReadJson of a file's text in JSON. Also Corrupt: deeper nesting, text longer than `max_bytes`,
// and a pointer of Git LFS.
absl::StatusOr<JsonValue> ParseJson(absl::string_view text, absl::string_view source,
                                    int64_t max_bytes, size_t max_depth = kMaxJsonDepth);

}  // namespace dsv4
