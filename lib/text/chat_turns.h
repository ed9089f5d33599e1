// SPDX-License-Identifier: Apache-2.0
// Groups messages into the turns that chat_encoder.h renders: tool results and neighbouring user
// messages become one user turn, results are ordered by their calls, and turns that the thinking
// mode drops are left out.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lib/text/chat_message.h"

namespace dsv4 {

// Points into the messages from which it was made.
struct ChatTurn {
  // The first message of the turn. The other messages of a user turn are only in `parts`.
  const ChatMessage* message;
  absl::string_view list;  // "messages" or "context"
  size_t index;            // of `message` in its list
  // The messages of a user turn, of role user or tool, in the order in which they are rendered.
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
