// SPDX-License-Identifier: Apache-2.0
// Conversations to prompts: which control tokens and which texts make up the prompt of a list of
// messages. Plain system, user and assistant turns. How text becomes tokens is the tokenizer's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/text/tokenizer.h"

namespace dsv4 {

struct ChatMessage {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
  std::string reasoning_content;  // of an assistant turn; ignored in other roles
};

enum class ThinkingMode {
  kChat,      // the assistant answers at once, after </think>
  kThinking,  // turns after the last user message reason first, after <think>
};

// The prompt of `messages` as token ids: it begins with the begin-of-sentence token and, when the
// last message is a user's, ends with the opened assistant turn. Control tokens come from structure
// alone: every message text is encoded with added tokens off, so no message can forge a turn.
// Unsupported: another role (names it and the message's index). InvalidArgument: text that is not
// UTF-8. NotFound: a control token (named) that the tokenizer lacks.
absl::StatusOr<std::vector<int32_t>> RenderChat(const Tokenizer& tokenizer,
                                                absl::Span<const ChatMessage> messages,
                                                ThinkingMode mode);

// The same prompt as text, for people and for comparison: unlike the ids it cannot tell a control
// token from a message that spells one.
absl::StatusOr<std::string> RenderChatText(absl::Span<const ChatMessage> messages,
                                           ThinkingMode mode);

}  // namespace dsv4
