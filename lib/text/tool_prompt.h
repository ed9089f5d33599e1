// SPDX-License-Identifier: Apache-2.0
// Tools in a prompt: the section that offers them, the markup of calls (DSML) and of results.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lib/io/json.h"
#include "lib/text/chat_message.h"
#include "lib/text/chat_prompt.h"

namespace dsv4 {

// The section "## Tools" with one line for each of `functions`.
void AppendToolsSection(absl::Span<const JsonValue> functions, ChatPrompt* prompt);

// The block of calls that ends an assistant turn. InvalidArgument, naming `place` (the message) and
// the field: arguments that are JSON, but no object. Unsupported: arguments nested too deeply.
absl::Status AppendToolCalls(absl::Span<const ToolCall> calls, absl::string_view place,
                             ChatPrompt* prompt);

void AppendToolResult(absl::string_view content, ChatPrompt* prompt);

}  // namespace dsv4
