// SPDX-License-Identifier: Apache-2.0
// Renders conversations to prompts like the family's published encoder: the control tokens and
// texts of a list of messages. chat_json.h reads conversations from JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/text/chat_message.h"
#include "lib/text/tokenizer.h"

namespace dsv4 {

// Renders `messages` to token ids. The prompt begins with the begin-of-sentence token. If the last
// message is a user's or a tool's, it ends with the opened assistant turn. Texts of messages,
// tools, schemas and names are encoded with added tokens off, so they cannot forge a control token.
// Otherwise the ids equal those of the published prompt's text.
//
// With a `context` the result continues the prompt of the context: it has only the ids that
// `messages` add.
//
// Errors:
// - InvalidArgument, naming the message and the field: text that is not UTF-8, an empty developer
//   message, an unknown task, tool-call arguments that are not an object.
// - Unsupported: another role (names it and the message), arguments nested too deeply.
// - NotFound: the tokenizer lacks a control token (named).
// Messages that are not rendered (those of the context, dropped ones) are only checked for UTF-8.
absl::StatusOr<std::vector<int32_t>> RenderChat(const Tokenizer& tokenizer,
                                                absl::Span<const ChatMessage> messages,
                                                const ChatOptions& options,
                                                absl::Span<const ChatMessage> context = {});

// The prompt as text, byte for byte the published one, for display and comparison. Do not
// tokenize it: it cannot distinguish a control token from a message that spells one. The text is
// WTF-8: unpaired surrogates of tool-call arguments stay. In the ids they are U+FFFD.
absl::StatusOr<std::string> RenderChatText(absl::Span<const ChatMessage> messages,
                                           const ChatOptions& options,
                                           absl::Span<const ChatMessage> context = {});

// With the options' defaults.
inline absl::StatusOr<std::vector<int32_t>> RenderChat(const Tokenizer& tokenizer,
                                                       absl::Span<const ChatMessage> messages,
                                                       ThinkingMode mode) {
  return RenderChat(tokenizer, messages, ChatOptions{.mode = mode});
}

}  // namespace dsv4
