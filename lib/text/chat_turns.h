// SPDX-License-Identifier: Apache-2.0
// From messages to the turns that are rendered: tool results and neighbouring user messages become
// one user turn, results take the order of their calls, and turns that the thinking mode drops are
// left out. How a turn is written is chat_encoder.h's.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lib/text/chat_message.h"

namespace dsv4 {

// Points into the messages that it was made of.
struct ChatTurn {
  // The first message of the turn. In a user turn the others are in `parts` alone.
  const ChatMessage* message;
  absl::string_view list;  // "messages" or "context"
  size_t index;            // of `message` in its list
  // Of a user turn its messages, of role user or tool, in the order in which they are written.
  std::vector<const ChatMessage*> parts = {};

  bool IsUser() const { return !parts.empty(); }
  absl::string_view Role() const { return IsUser() ? absl::string_view("user") : message->role; }
  bool HasRole(absl::string_view role) const { return Role() == role; }
  // Null when there is none, as in a turn that begins with a tool result.
  const std::string* Task() const;
  std::string Place() const;  // "messages[3]"
};

struct ChatTurns {
  std::vector<ChatTurn> turns;
  size_t first_rendered = 0;  // those before it are known from the context
  bool has_context = false;
  bool drops_thinking = false;  // ChatOptions::drop_thinking, unless tools switch it off
};

ChatTurns TurnsOf(absl::Span<const ChatMessage> context, absl::Span<const ChatMessage> messages,
                  const ChatOptions& options);

// Index of the last user or developer turn plus one; 0 for none.
size_t EndOfLastUserTurn(absl::Span<const ChatTurn> turns);

}  // namespace dsv4
