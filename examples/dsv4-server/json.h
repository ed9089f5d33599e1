// SPDX-License-Identifier: Apache-2.0
// JSON as clients send it. Objects keep the order of their members: the model sees it in tools.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace server {

using Json = nlohmann::ordered_json;

// Parses the JSON object in `text`. Surrogates without their other half, which some clients write
// where they cut texts, become U+FFFD. Throws an ApiError for anything else, for more than 64
// levels and for objects of more than 1024 members. Both limits are checked before anything is
// built.
Json ParseObject(std::string_view text);

// On one line, always valid UTF-8. Numbers of requests keep their text.
std::string TextOf(const Json& json);

// A number that Json would write otherwise, such as 1e3 or one of 30 digits, is stored as its text
// in a binary value. The library decides how the model sees numbers of schemas.
bool IsNumber(const Json& json);
// REQUIRES: IsNumber.
double NumberOf(const Json& json);

}  // namespace server
