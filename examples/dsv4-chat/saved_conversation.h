// SPDX-License-Identifier: Apache-2.0
// The messages of a saved conversation, in a file next to the library's saved session, which does
// not contain messages.
#pragma once

#include <dsv4/dsv4.hpp>
#include <string>
#include <vector>

namespace chat {

struct SavedConversation {
  std::string system, tools;  // tools: a JSON array, or empty
  dsv4_thinking_mode thinking = DSV4_THINKING_OFF;
  std::vector<std::string> messages;       // JSON objects, without the system message
  std::vector<dsv4::ToolCall> open_calls;  // that wait for results
};

// A turn of the conversation: the first message of the question, and the message that answers it.
struct Turn {
  size_t begin;
  size_t answer;
};

// The turns of `messages`. Each begins with a user message or the results of tools.
std::vector<Turn> TurnsOf(const std::vector<std::string>& messages);

// Writes JSON with a version. It is on the disk when this returns; the old file stays until then.
// Throws a Failure.
void WriteConversation(const std::string& path, const SavedConversation& conversation);

// Throws a Failure that names the file and the reason if it is not a saved conversation.
SavedConversation ReadConversation(const std::string& path);

}  // namespace chat
