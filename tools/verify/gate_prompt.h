// SPDX-License-Identifier: Apache-2.0
// The prompts of gates.json as text, tools, tool calls and response formats included: the part of
// the family's chat format that the bundled model was trained on (tools/tinymodel/chat.py). It goes
// once the library's chat encoder renders tools. The messages are trusted: the text is to be
// encoded with added tokens on, so a message could forge a turn.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "lib/io/json.h"

namespace dsv4 {

// `messages`: a list of {role, content, ...} with roles system, user, assistant and tool. Ends with
// the opened assistant turn. Corrupt, naming the message, for any other form.
absl::StatusOr<std::string> GatePrompt(const JsonValue& messages, bool thinking);

}  // namespace dsv4
