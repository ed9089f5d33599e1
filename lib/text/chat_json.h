// SPDX-License-Identifier: Apache-2.0
// Reads conversations and tools from JSON in the form of OpenAI's chat API, with the family's own
// keys.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/io/json.h"
#include "lib/text/chat_message.h"

namespace dsv4 {

// Reads an array of message objects.
// - Keys: role, content, reasoning_content, tool_calls, tool_call_id, wo_eos, tools,
//   response_format, task, and prefix. `prefix` is allowed on the last message if it is an
//   assistant's, and means wo_eos: the model continues the message. Other keys are ignored.
// - The JSON dialect is Python's (python_json.h).
// - `content` may be a list of parts. The texts of parts without a type, or of type text,
//   input_text or output_text, are joined by an empty line. In user and tool messages another part
//   without a text becomes "[Unsupported TYPE]", as in the published encoder. Null is an empty
//   text, except in user messages. Numbers and booleans in place of a text are read as in the
//   published encoder.
// - Tool-call arguments may be an object or its JSON in a string. Null: no arguments.
//
// Errors:
// - Corrupt: not JSON.
// - InvalidArgument, as "SOURCE[i].KEY...": a value of the wrong kind; an incomplete tool call or
//   tool; a tool in the flat form; a part or key whose text the message's role would drop; a prefix
//   on a message that is not the last. Also in messages of a context, where the published encoder
//   would not notice.
// Arguments of calls are mended as clients send them: empty text becomes {}, and of an object that
// was cut off the members so far count.
absl::StatusOr<std::vector<ChatMessage>> ParseMessages(absl::string_view json,
                                                       absl::string_view source = "messages");
absl::StatusOr<std::vector<ChatMessage>> MessagesFromJson(const JsonValue& array,
                                                          absl::string_view source = "messages");

// An assistant's message as an object that MessagesFromJson reads back: role, content,
// reasoning_content and tool_calls, ids where they are not empty.
JsonValue AssistantToJson(const ChatMessage& message);
// Any message as such an object, with the keys that are set and that its role uses.
JsonValue MessageToJson(const ChatMessage& message);

// An array of {"type": "function", "function": {...}}: the values of "function", for
// ChatMessage::tools. Errors as above.
absl::StatusOr<std::vector<JsonValue>> ParseTools(absl::string_view json,
                                                  absl::string_view source = "tools");
absl::StatusOr<std::vector<JsonValue>> ToolsFromJson(const JsonValue& array,
                                                     absl::string_view source = "tools");

}  // namespace dsv4
