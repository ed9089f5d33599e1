// SPDX-License-Identifier: Apache-2.0
// Conversations and how to render them, as they come in through the C interface.
#pragma once

#include <dsv4/chat.h>

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/text/chat_message.h"

namespace dsv4::capi {

// Names are those of the arguments, with which errors begin.

struct Thinking {
  ThinkingMode mode;
  ReasoningEffort effort;
};
absl::StatusOr<Thinking> ThinkingFrom(dsv4_thinking_mode given, absl::string_view name);

// Errors name the message and the field as C spells it.
absl::StatusOr<std::vector<ChatMessage>> MessagesFrom(const dsv4_message* const* given,
                                                      size_t count, absl::string_view name);

struct Rendering {
  ChatOptions options;
  std::vector<ChatMessage> context;
};
// `given` may be null, for the defaults. `of_model`: the encoder of DSV4_CHAT_ENCODER_AUTO.
absl::StatusOr<Rendering> RenderingFrom(const dsv4_chat_options* given, absl::string_view name,
                                        ChatEncoder of_model);

}  // namespace dsv4::capi
