// SPDX-License-Identifier: Apache-2.0
#include "lib/text/tokenizer_json.h"

#include <optional>

#include "lib/base/error.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"

namespace dsv4 {
namespace {

absl::StatusOr<const JsonValue*> ValueAt(const JsonValue& object, absl::string_view key,
                                         absl::string_view where) {
  if (!object.AsObject())
    return Corrupt(where, ": is of kind ", object.KindName(), "; expected an object");
  const JsonValue* value = object.Find(key);
  if (!value) return Corrupt(where, ": key \"", key, "\" is missing");
  return value;
}

absl::Status WrongKind(const JsonValue& value, absl::string_view key, absl::string_view wanted,
                       absl::string_view where) {
  return Corrupt(where, ": \"", key, "\" is ", value.KindName(), ", not ", wanted);
}

}  // namespace

absl::StatusOr<const std::vector<JsonMember>*> ObjectAt(const JsonValue& object,
                                                        absl::string_view key,
                                                        absl::string_view where) {
  DSV4_ASSIGN_OR_RETURN(const JsonValue* value, ValueAt(object, key, where));
  if (!value->AsObject()) return WrongKind(*value, key, "object", where);
  return value->AsObject();
}

absl::StatusOr<const std::vector<JsonValue>*> ArrayAt(const JsonValue& object,
                                                      absl::string_view key,
                                                      absl::string_view where) {
  DSV4_ASSIGN_OR_RETURN(const JsonValue* value, ValueAt(object, key, where));
  if (!value->AsArray()) return WrongKind(*value, key, "array", where);
  return value->AsArray();
}

absl::StatusOr<absl::string_view> StringAt(const JsonValue& object, absl::string_view key,
                                           absl::string_view where) {
  DSV4_ASSIGN_OR_RETURN(const JsonValue* value, ValueAt(object, key, where));
  if (!value->AsString()) return WrongKind(*value, key, "string", where);
  return absl::string_view(*value->AsString());
}

absl::StatusOr<bool> BoolAt(const JsonValue& object, absl::string_view key, bool absent,
                            absl::string_view where) {
  const JsonValue* value = object.Find(key);
  if (!value) return absent;
  const std::optional<bool> b = value->AsBool();
  if (!b) return WrongKind(*value, key, "boolean", where);
  return *b;
}

absl::StatusOr<int32_t> TokenIdOf(const JsonValue& value, absl::string_view token,
                                  absl::string_view where) {
  const std::optional<int64_t> id = value.AsInt64();
  if (!id || *id < 0 || *id >= kMaxTokenIds) {
    const std::string* text = value.AsNumberText();
    return Corrupt(where, ": the id of token ", Quoted(token), " is ",
                   text ? Quoted(*text) : value.KindName(), ", not an integer from 0 to ",
                   kMaxTokenIds - 1);
  }
  return static_cast<int32_t>(*id);
}

absl::Status RequireOff(const JsonValue& object, absl::string_view key, absl::string_view where) {
  const JsonValue* value = object.Find(key);
  if (!value || value->IsNull() || value->AsBool() == false) return absl::OkStatus();
  const std::string* text = value->AsString();
  if (text && text->empty()) return absl::OkStatus();
  if (!text) text = value->AsNumberText();
  return Unsupported(where, ": \"", key, "\" ",
                     text              ? Quoted(*text)
                     : value->AsBool() ? "true"
                                       : value->KindName(),
                     " is not supported");
}

}  // namespace dsv4
