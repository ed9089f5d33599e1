// SPDX-License-Identifier: Apache-2.0
#include "examples/console/json_text.h"

#include <cstddef>
#include <cstdio>

namespace chat {
namespace {

// Bytes of the UTF-8 character that `text` begins with; 0 when it begins with none.
size_t CharacterBytes(std::string_view text) {
  const auto byte = [&](size_t i) {
    return static_cast<unsigned char>(i < text.size() ? text[i] : 0);
  };
  const unsigned char first = byte(0), second = byte(1);
  if (first < 0x80) return 1;
  const size_t bytes = first < 0xc2   ? 0
                       : first < 0xe0 ? 2
                       : first < 0xf0 ? 3
                       : first < 0xf5 ? 4
                                      : 0;
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool surrogate = first == 0xed && second >= 0xa0;
  const bool beyond = first == 0xf4 && second >= 0x90;
  return overlong || surrogate || beyond ? 0 : bytes;
}

}  // namespace

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t bytes = CharacterBytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string JsonString(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const size_t bytes = CharacterBytes(text);
    const auto c = static_cast<unsigned char>(text[0]);
    if (bytes == 0) {
      out += "\xef\xbf\xbd";
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += text[0];
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c < 0x20 || c == 0x7f) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      out += escape;
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return out + "\"";
}

std::string JsonArray(const std::vector<std::string>& items) {
  std::string text = "[";
  for (const std::string& item : items) text += (text.size() > 1 ? ", " : "") + item;
  return text + "]";
}

JsonObject& JsonObject::String(std::string_view key, std::string_view value) {
  return Json(key, JsonString(value));
}

JsonObject& JsonObject::Number(std::string_view key, int64_t value) {
  return Json(key, std::to_string(value));
}

JsonObject& JsonObject::Number(std::string_view key, double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6f", value);
  return Json(key, text);
}

JsonObject& JsonObject::Bool(std::string_view key, bool value) {
  return Json(key, value ? "true" : "false");
}

JsonObject& JsonObject::Json(std::string_view key, std::string_view json) {
  text_ += text_.empty() ? "{" : ", ";
  text_ += JsonString(key);
  text_ += ": ";
  text_ += json;
  return *this;
}

}  // namespace chat
