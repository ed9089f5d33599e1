// SPDX-License-Identifier: Apache-2.0
// The chat on a terminal: reads lines, and executes commands or answers messages.
#pragma once

#include "examples/dsv4-chat/conversation.h"
#include "examples/dsv4-chat/options.h"
#include "examples/dsv4-chat/screen.h"

namespace chat {

// Runs until /quit, the end of the input, or Ctrl-C at the prompt. Returns the exit code.
int RunInteractive(const Options& options, Conversation* conversation, Screen* screen);

}  // namespace chat
