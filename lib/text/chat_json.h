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
// wo_eos, tools, response_format, task, and prefix, which on the last message, an assistant's, is
// wo_eos: the model continues it. Others are ignored. The JSON dialect is Python's
// (python_json.h).
//
// `content` may be a list of parts, whose texts are joined by an empty line: parts of type text,
// input_text or output_text, or without a type. Another part without a text is "[Unsupported TYPE]"
// in user and tool messages, as published. Null is an empty text but of a user; numbers and
// booleans where a text belongs are read as the published encoder reads them. Tool-call arguments
// may be an object or its JSON in a string; null is no arguments.
//
// Corrupt: not JSON. InvalidArgument, as "SOURCE[i].KEY...": a value of another kind than its key
// takes, a tool call or a tool without its parts, a tool of the flat form, a part whose text would
// be lost, a key whose words would be lost in its message's role, a prefix that is not the last;
// also in messages that are only to be context, where the published encoder would not notice.
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
