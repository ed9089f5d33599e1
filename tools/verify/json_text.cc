// SPDX-License-Identifier: Apache-2.0
#include "tools/verify/json_text.h"

#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace dsv4 {
namespace {

void AppendString(absl::string_view text, std::string* out) {
  *out += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        *out += "\\\"";
        break;
      case '\\':
        *out += "\\\\";
        break;
      case '\b':
        *out += "\\b";
        break;
      case '\f':
        *out += "\\f";
        break;
      case '\n':
        *out += "\\n";
        break;
      case '\r':
        *out += "\\r";
        break;
      case '\t':
        *out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          absl::StrAppendFormat(out, "\\u%04x", static_cast<int>(c));
        } else {
          *out += c;
        }
    }
  }
  *out += '"';
}

void Append(const JsonValue& value, std::string* out) {
  if (const auto* members = value.AsObject()) {
    *out += '{';
    for (const JsonMember& member : *members) {
      if (&member != members->data()) *out += ", ";
      AppendString(member.key, out);
      *out += ": ";
      Append(member.value, out);
    }
    *out += '}';
  } else if (const auto* elements = value.AsArray()) {
    *out += '[';
    for (const JsonValue& element : *elements) {
      if (&element != elements->data()) *out += ", ";
      Append(element, out);
    }
    *out += ']';
  } else if (const std::string* text = value.AsString()) {
    AppendString(*text, out);
  } else if (const std::string* number = value.AsNumberText()) {
    *out += *number;
  } else if (const std::optional<bool> flag = value.AsBool()) {
    *out += *flag ? "true" : "false";
  } else {
    *out += "null";
  }
}

bool NumbersEqual(const std::string& a, const std::string& b) {
  double x = 0, y = 0;
  return a == b || (absl::SimpleAtod(a, &x) && absl::SimpleAtod(b, &y) && x == y);
}

}  // namespace

std::string PythonJson(const JsonValue& value) {
  std::string out;
  Append(value, &out);
  return out;
}

bool JsonEqual(const JsonValue& a, const JsonValue& b) {
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case JsonValue::Kind::kNull:
      return true;
    case JsonValue::Kind::kBool:
      return *a.AsBool() == *b.AsBool();
    case JsonValue::Kind::kNumber:
      return NumbersEqual(*a.AsNumberText(), *b.AsNumberText());
    case JsonValue::Kind::kString:
      return *a.AsString() == *b.AsString();
    case JsonValue::Kind::kArray: {
      const std::vector<JsonValue>&x = *a.AsArray(), &y = *b.AsArray();
      if (x.size() != y.size()) return false;
      for (size_t i = 0; i < x.size(); ++i) {
        if (!JsonEqual(x[i], y[i])) return false;
      }
      return true;
    }
    case JsonValue::Kind::kObject: {
      if (a.AsObject()->size() != b.AsObject()->size()) return false;
      for (const JsonMember& member : *a.AsObject()) {
        const JsonValue* other = b.Find(member.key);
        if (other == nullptr || !JsonEqual(member.value, *other)) return false;
      }
      return true;
    }
  }
  return false;
}

}  // namespace dsv4
