// SPDX-License-Identifier: Apache-2.0
// A whole completion to the message it stands for, as strictly as the family's published parser:
// what that one refuses is an error here. Completions that are still growing, or that may be
// broken, are streaming_parser.h's.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/text/chat_message.h"

namespace dsv4 {

// `completion` is what follows the prompt of a conversation rendered in `mode`, up to and with the
// end-of-sentence marker, which may be missing after tool calls only. The message is an
// assistant's, its tool calls without ids. Their arguments are objects: string parameters written
// as Python's json.dumps(ensure_ascii=False), the text of other parameters as the model wrote it,
// JSON or not.
//
// Corrupt, saying what is wrong (and at which byte, where one byte is), for anything else: a
// missing marker, one out of place, text around or between tool calls, a repeated parameter.
// InvalidArgument: `completion` is not UTF-8. Time and memory are linear.
absl::StatusOr<ChatMessage> ParseCompletion(absl::string_view completion, ThinkingMode mode);

}  // namespace dsv4
