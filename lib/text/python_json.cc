// SPDX-License-Identifier: Apache-2.0
// json.loads, json.dumps, str and bool of Python for JSON values.
#include "lib/text/python_json.h"

#include <charconv>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace dsv4 {
namespace {

bool IsInteger(absl::string_view number) {
  return number.find_first_not_of("-0123456789") == absl::string_view::npos;
}

// float(number); out of range gives an infinity or zero, as in Python.
double FloatOf(absl::string_view number) {
  double value = 0;
  if (!absl::SimpleAtod(number, &value)) return std::nan("");
  return value;
}

// repr of a finite float: the shortest digits that read back as `value`, positional for exponents
// in [-4, 16).
void AppendFloat(double value, std::string* out) {
  char buffer[32];
  const char* end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  absl::string_view shortest(buffer, end - buffer);
  if (shortest.front() == '-') {
    out->push_back('-');
    shortest.remove_prefix(1);
  }
  const size_t e = shortest.find('e');
  int exponent = 0;
  std::from_chars(shortest.data() + e + (shortest[e + 1] == '+' ? 2 : 1), end, exponent);
  if (exponent < -4 || exponent >= 16) {
    absl::StrAppend(out, shortest);
    return;
  }
  std::string digits(1, shortest[0]);
  if (e > 2) absl::StrAppend(&digits, shortest.substr(2, e - 2));
  if (exponent < 0) {
    absl::StrAppend(out, "0.", std::string(-exponent - 1, '0'), digits);
    return;
  }
  const size_t whole = exponent + 1;
  if (digits.size() < whole + 1) digits.append(whole + 1 - digits.size(), '0');
  absl::StrAppend(out, absl::string_view(digits).substr(0, whole), ".",
                  absl::string_view(digits).substr(whole));
}

void AppendNumber(absl::string_view number, absl::string_view nan, absl::string_view infinity,
                  std::string* out) {
  if (IsInteger(number)) {
    absl::StrAppend(out, number == "-0" ? "0" : number);
    return;
  }
  const double value = FloatOf(number);
  if (std::isfinite(value)) {
    AppendFloat(value, out);
  } else {
    absl::StrAppend(out,
                    std::isnan(value)     ? nan
                    : std::signbit(value) ? "-"
                                          : "",
                    std::isnan(value) ? "" : infinity);
  }
}

void AppendString(absl::string_view text, std::string* out) {
  out->push_back('"');
  AppendJsonEscaped(text, out);
  out->push_back('"');
}

// REQUIRES: `value` is no array and no object.
void AppendScalar(const JsonValue& value, std::string* out) {
  if (const std::string* text = value.AsString()) {
    AppendString(*text, out);
  } else if (const std::string* number = value.AsNumberText()) {
    AppendNumber(*number, "NaN", "Infinity", out);
  } else if (const std::optional<bool> truth = value.AsBool()) {
    out->append(*truth ? "true" : "false");
  } else {
    out->append("null");
  }
}

}  // namespace

bool IsJson(absl::string_view text) {
  constexpr JsonDialect kDialect = {.surrogates = true,
                                    .max_depth = std::numeric_limits<size_t>::max()};
  return !absl::StartsWith(text, kUtf8ByteOrderMark) && ReadJson(text, "", kDialect).ok();
}

absl::StatusOr<JsonValue> ParsePythonJson(absl::string_view text, absl::string_view source) {
  return ReadJson(text, source,
                  {.surrogates = true,
                   .non_finite = true,
                   .max_integer_digits = kMaxPythonIntegerDigits,
                   .max_depth = kMaxPythonJsonDepth});
}

void AppendJsonEscaped(absl::string_view text, std::string* out) {
  constexpr char kHexDigits[] = "0123456789abcdef";
  constexpr absl::string_view kCharacters = "\"\\\b\f\n\r\t", kNames = "\"\\bfnrt";
  size_t done = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const unsigned char c = text[i];
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    out->append(text.data() + done, i - done);
    done = i + 1;
    const size_t named = kCharacters.find(text[i]);
    if (named != absl::string_view::npos) {
      out->append({'\\', kNames[named]});
    } else {
      out->append({'\\', 'u', '0', '0', kHexDigits[c >> 4], kHexDigits[c & 15]});
    }
  }
  out->append(text.data() + done, text.size() - done);
}

// Open containers are in a list, so that nesting cannot exhaust the thread's stack.
void AppendPythonJson(const JsonValue& value, std::string* out) {
  struct Open {
    const JsonValue* container;
    size_t next = 0;
  };
  std::vector<Open> open;
  const auto append = [&](const JsonValue& item) {
    if (item.AsArray() || item.AsObject()) {
      out->push_back(item.AsArray() ? '[' : '{');
      open.push_back({&item});
    } else {
      AppendScalar(item, out);
    }
  };
  append(value);
  while (!open.empty()) {
    const std::vector<JsonValue>* items = open.back().container->AsArray();
    const std::vector<JsonMember>* members = open.back().container->AsObject();
    const size_t next = open.back().next++;
    if (next == (items ? items->size() : members->size())) {
      out->push_back(items ? ']' : '}');
      open.pop_back();
      continue;
    }
    if (next > 0) out->append(", ");
    if (items) {
      append((*items)[next]);
    } else {
      AppendString((*members)[next].key, out);
      out->append(": ");
      append((*members)[next].value);
    }
  }
}

std::optional<std::string> PythonStr(const JsonValue& value) {
  std::string text;
  switch (value.kind()) {
    case JsonValue::Kind::kNull:
      return "None";
    case JsonValue::Kind::kBool:
      return *value.AsBool() ? "True" : "False";
    case JsonValue::Kind::kNumber:
      AppendNumber(*value.AsNumberText(), "nan", "inf", &text);
      return text;
    case JsonValue::Kind::kString:
      return *value.AsString();
    case JsonValue::Kind::kArray:
    case JsonValue::Kind::kObject:
      break;
  }
  return std::nullopt;
}

bool PythonTruth(const JsonValue& value) {
  switch (value.kind()) {
    case JsonValue::Kind::kNull:
      return false;
    case JsonValue::Kind::kBool:
      return *value.AsBool();
    case JsonValue::Kind::kNumber:
      // NaN is true.
      return FloatOf(*value.AsNumberText()) != 0;
    case JsonValue::Kind::kString:
      return !value.AsString()->empty();
    case JsonValue::Kind::kArray:
      return !value.AsArray()->empty();
    case JsonValue::Kind::kObject:
      return !value.AsObject()->empty();
  }
  return false;
}

}  // namespace dsv4
