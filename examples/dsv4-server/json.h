// SPDX-License-Identifier: Apache-2.0
// JSON as clients send it. Objects keep the order of their members: the model sees it in tools.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace server {

using Json = nlohmann::ordered_json;

// The JSON object in `text`. Throws an ApiError for anything else, for more than 64 levels and for
// objects of more than 1024 members: both are looked at before anything is built.
Json ParseObject(std::string_view text);

// On one line, always valid UTF-8. Numbers of requests are as they came.
std::string TextOf(const Json& json);

// A number of a request that Json would write otherwise, such as 1e3 or one of 30 digits, is its
// text, as a binary value: how the model sees numbers of schemas is left to the library.
bool IsNumber(const Json& json);
// REQUIRES: IsNumber.
double NumberOf(const Json& json);

}  // namespace server
