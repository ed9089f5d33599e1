// SPDX-License-Identifier: Apache-2.0
// Conversations and tools from JSON in the form of OpenAI's chat API, with the family's own keys.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/io/json.h"
#include "lib/text/chat_message.h"

namespace dsv4 {

// An array of message objects. Keys: role, content, reasoning_content, tool_calls, tool_call_id,
// wo_eos, tools, response_format, task; others are ignored, and so is a key that means nothing in
// its message's role. The JSON dialect is Python's (python_json.h). `content` of user and tool
// messages may be a list of parts, whose texts are joined by an empty line; a part that is no text
// becomes "[Unsupported TYPE]", as published. Null, numbers and booleans where a text belongs are
// read as the published encoder reads them, and so are tool-call arguments that are no string: they
// are the value of the one parameter "arguments".
//
// Corrupt: not JSON. InvalidArgument, as "SOURCE[i].KEY...": a value of another kind than its key
// takes, a tool call or a tool without its parts; also in messages that are only to be context,
// where the published encoder would not notice.
absl::StatusOr<std::vector<ChatMessage>> ParseMessages(absl::string_view json,
                                                       absl::string_view source = "messages");
absl::StatusOr<std::vector<ChatMessage>> MessagesFromJson(const JsonValue& array,
                                                          absl::string_view source = "messages");

// An assistant's message as an object that MessagesFromJson reads back: role, content,
// reasoning_content and tool_calls, ids where they are not empty.
JsonValue AssistantToJson(const ChatMessage& message);
// Any message as such an object, with the keys that mean something in its role and are set.
JsonValue MessageToJson(const ChatMessage& message);

// An array of {"type": "function", "function": {...}}: the values of "function", for
// ChatMessage::tools. Errors as above.
absl::StatusOr<std::vector<JsonValue>> ParseTools(absl::string_view json,
                                                  absl::string_view source = "tools");
absl::StatusOr<std::vector<JsonValue>> ToolsFromJson(const JsonValue& array,
                                                     absl::string_view source = "tools");

}  // namespace dsv4
