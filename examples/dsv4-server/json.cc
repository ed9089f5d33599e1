// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/json.h"

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <system_error>
#include <vector>

#include "examples/dsv4-server/api_error.h"

namespace server {
namespace {

constexpr size_t kMostLevels = 64;
constexpr size_t kMostMembers = 1024;  // Json looks for a name among all members

// Bounds what the parser is given. Text that is not JSON may pass: the parser refuses it.
void CheckSizes(std::string_view text) {
  std::vector<size_t> colons;  // of each open bracket
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      colons.push_back(0);
      if (colons.size() > kMostLevels)
        throw InvalidRequest(
            "", "the body is nested deeper than " + std::to_string(kMostLevels) + " levels");
    } else if (c == '}' || c == ']') {
      if (!colons.empty()) colons.pop_back();
    } else if (c == ':' && !colons.empty() && ++colons.back() > kMostMembers) {
      throw InvalidRequest(
          "", "the body has an object of more than " + std::to_string(kMostMembers) + " members");
    }
  }
}

// The code unit of the escape \uXXXX at `i`; -1 if there is none.
int EscapeAt(std::string_view text, size_t i) {
  if (i + 6 > text.size() || text[i] != '\\' || text[i + 1] != 'u') return -1;
  int unit = 0;
  const auto [end, error] = std::from_chars(text.data() + i + 2, text.data() + i + 6, unit, 16);
  return error == std::errc() && end == text.data() + i + 6 ? unit : -1;
}

bool IsBetween(int unit, int low, int high) { return unit >= low && unit <= high; }

// `text` with each escape of an unpaired surrogate replaced. Backslashes stand in strings only.
std::string WithPairedSurrogates(std::string_view text) {
  std::string repaired(text);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') continue;
    const int unit = EscapeAt(text, i);
    if (!IsBetween(unit, 0xD800, 0xDFFF)) {
      ++i;  // what is escaped is not the beginning of an escape
    } else if (unit < 0xDC00 && IsBetween(EscapeAt(text, i + 6), 0xDC00, 0xDFFF)) {
      i += 11;
    } else {
      repaired.replace(i + 2, 4, "fffd");
      i += 5;
    }
  }
  return repaired;
}

// Builds what is parsed.
class Builder : public nlohmann::detail::json_sax_dom_parser<Json> {
 public:
  using nlohmann::detail::json_sax_dom_parser<Json>::json_sax_dom_parser;

  bool number_float(double value, const std::string& text) {
    if (Json(value).dump() == text) return json_sax_dom_parser::number_float(value, text);
    Json::binary_t raw(std::vector<uint8_t>(text.begin(), text.end()));
    return binary(raw);
  }
};

std::string RawTextOf(const Json& json) {
  const Json::binary_t& raw = json.get_binary();
  return {raw.begin(), raw.end()};
}

std::string DumpOf(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void Append(const Json& json, std::string* text) {
  const char* separator = "";
  if (json.is_object()) {
    *text += '{';
    for (const auto& [name, value] : json.items()) {
      *text += separator + DumpOf(name) + ":";
      Append(value, text);
      separator = ",";
    }
    *text += '}';
  } else if (json.is_array()) {
    *text += '[';
    for (const Json& value : json) {
      *text += separator;
      Append(value, text);
      separator = ",";
    }
    *text += ']';
  } else {
    *text += json.is_binary() ? RawTextOf(json) : DumpOf(json);
  }
}

}  // namespace

Json ParseObject(std::string_view text) {
  CheckSizes(text);
  try {
    Json json;
    Builder builder(json);
    Json::sax_parse(WithPairedSurrogates(text), &builder);
    if (json.is_object()) return json;
  } catch (const Json::parse_error& error) {
    throw InvalidRequest("", "the body is not JSON: error at byte " + std::to_string(error.byte));
  } catch (const Json::out_of_range&) {
    throw InvalidRequest("", "the body has a number that is too large");
  }
  throw InvalidRequest("", "the body is not a JSON object");
}

std::string TextOf(const Json& json) {
  std::string text;
  Append(json, &text);
  return text;
}

bool IsNumber(const Json& json) { return json.is_number() || json.is_binary(); }

double NumberOf(const Json& json) {
  // The parser has seen that it is a number, and not too large.
  return json.is_binary() ? std::strtod(RawTextOf(json).c_str(), nullptr) : json.get<double>();
}

}  // namespace server
