// SPDX-License-Identifier: Apache-2.0
// Converts messages and chat options of the C interface to those of lib/text.
#pragma once

#include <dsv4/chat.h>

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/text/chat_message.h"

namespace dsv4::capi {

// `name` is the argument's name in C. Error messages begin with it.

struct Thinking {
  ThinkingMode mode;
  ReasoningEffort effort;
};
absl::StatusOr<Thinking> ThinkingFrom(dsv4_thinking_mode given, absl::string_view name);

// Errors name the message and the field, as in "messages[0].role".
absl::StatusOr<std::vector<ChatMessage>> MessagesFrom(const dsv4_message* const* given,
                                                      size_t count, absl::string_view name);

struct Rendering {
  ChatOptions options;
  std::vector<ChatMessage> context;
};
// `given` may be null: the defaults. DSV4_CHAT_ENCODER_AUTO becomes `of_model`.
absl::StatusOr<Rendering> RenderingFrom(const dsv4_chat_options* given, absl::string_view name,
                                        ChatEncoder of_model);

}  // namespace dsv4::capi
