// SPDX-License-Identifier: Apache-2.0
// Conversations to prompts, as the family's published encoder writes them: which control tokens and
// which texts make up the prompt of a list of messages. How text becomes tokens is the tokenizer's;
// JSON forms of conversations are chat_json.h's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/text/chat_message.h"
#include "lib/text/tokenizer.h"

namespace dsv4 {

// The prompt of `messages` as token ids: it begins with the begin-of-sentence token and, when the
// last message is a user's or a tool's, ends with the opened assistant turn. Control tokens come
// from structure alone: every text of a message, tool, schema or name is encoded with added tokens
// off, so none can forge one. Otherwise the ids are those of the published prompt's text.
//
// With a `context` the result continues the prompt of that conversation: it is what `messages` add.
//
// InvalidArgument, naming the message and the field: text that is not UTF-8, an empty developer
// message, an unknown task, tool-call arguments that are no object. Unsupported: another role
// (names it and the message), arguments nested too deeply. NotFound: a control token (named) that
// the tokenizer lacks. Messages that are not rendered (the context's, dropped ones) are checked for
// UTF-8 alone.
absl::StatusOr<std::vector<int32_t>> RenderChat(const Tokenizer& tokenizer,
                                                absl::Span<const ChatMessage> messages,
                                                const ChatOptions& options,
                                                absl::Span<const ChatMessage> context = {});

// The same prompt as text, byte for byte the published one, for people and for comparison: unlike
// the ids it cannot tell a control token from a message that spells one, so it is not to be
// tokenized. WTF-8: unpaired surrogates of tool-call arguments stay what they are, while the ids
// hold U+FFFD for them.
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
