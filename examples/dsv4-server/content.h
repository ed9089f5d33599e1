// SPDX-License-Identifier: Apache-2.0
// The contents of messages: texts, and lists of parts of many kinds. The model reads text only.
#pragma once

#include <string>

#include "examples/dsv4-server/json.h"
#include "examples/dsv4-server/notices.h"

namespace server {

// `content` as a text or a list of text parts, as the library takes it. A part that is no text,
// such as an image, becomes a text that says what was left out. Throws an ApiError for content of a
// wrong form, and with strict rules for parts that are no text.
Json ReadContent(const FieldRules& rules, const Json& content, const std::string& path);

// The same of one part, as a text.
std::string ReadPart(const FieldRules& rules, const Json& part, const std::string& path);

// `type` of a client, for texts: at most 40 letters, digits, "_", "-" and ".".
std::string PlainType(const std::string& type);

}  // namespace server
