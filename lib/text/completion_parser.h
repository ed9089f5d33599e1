// SPDX-License-Identifier: Apache-2.0
// Parses a whole completion to a message, as strictly as the family's published parser. Use
// streaming_parser.h for incomplete or malformed completions.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/text/chat_message.h"

namespace dsv4 {

// - completion: all text after the prompt of a conversation rendered in `mode`, including the
//   end-of-sentence marker, which may be missing only after tool calls.
// - Returns an assistant message. Its tool calls have no ids. Their arguments are objects: string
//   parameters written like Python's json.dumps(ensure_ascii=False), other parameters as the model
//   wrote them, JSON or not.
// - Errors: Corrupt, with the reason and, if known, the byte: a missing or misplaced marker, text
//   around or between tool calls, a repeated parameter. InvalidArgument: not UTF-8.
// - Time and memory are linear.
absl::StatusOr<ChatMessage> ParseCompletion(absl::string_view completion, ThinkingMode mode);

}  // namespace dsv4
