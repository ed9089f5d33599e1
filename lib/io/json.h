// SPDX-License-Identifier: Apache-2.0
// A JSON document as an owning tree. For documents whose key order and number text matter, or whose
// keys are not known in advance. Documents are untrusted.
#pragma once

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
  friend class JsonReader;

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

// Removes a number (RFC 8259) from the front of *text. Returns false if there is none; *text is
// then undefined.
bool TakeJsonNumber(absl::string_view* text);

// Editors on Windows write it in front of a text. JSON readers pass over one.
inline constexpr absl::string_view kUtf8ByteOrderMark = "\xEF\xBB\xBF";

// Deepest nesting of arrays and objects, at about 1.5 KiB of the stack each.
inline constexpr int kMaxJsonDepth = 200;

// Parses one whole document, with or without a byte order mark. A key that an object repeats keeps
// its first place and its last value, as in Python's json. Corrupt, as "SOURCE: line L, column C:
// REASON" (counted from 1, columns in bytes; the place where reading stopped, left out when none is
// known), for anything that is not JSON in UTF-8, for unpaired surrogate escapes, for nesting
// beyond `max_depth`, and for text longer than `max_bytes`.
absl::StatusOr<JsonValue> ParseJson(absl::string_view text, absl::string_view source,
                                    int64_t max_bytes, int max_depth = kMaxJsonDepth);

}  // namespace dsv4
