// SPDX-License-Identifier: Apache-2.0
// JSON that dsv4-chat writes: messages for the library, and lines for programs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace chat {

bool IsUtf8(std::string_view text);

// `text` as a JSON string on one line, quotes included. Bytes that are not UTF-8 become U+FFFD.
std::string JsonString(std::string_view text);

// `items` are JSON.
std::string JsonArray(const std::vector<std::string>& items);

// An object, member by member; text() ends it.
class JsonObject {
 public:
  JsonObject& String(std::string_view key, std::string_view value);
  JsonObject& Number(std::string_view key, int64_t value);
  JsonObject& Number(std::string_view key, double value);
  JsonObject& Bool(std::string_view key, bool value);
  // `json` is JSON.
  JsonObject& Json(std::string_view key, std::string_view json);

  std::string text() const { return text_.empty() ? "{}" : text_ + "}"; }

 private:
  std::string text_;
};

}  // namespace chat
