// SPDX-License-Identifier: Apache-2.0
// The messages of a conversation that is kept in a file. What the model computed of them is another
// file, the library's saved session: without these messages it would not be known what it is of.
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

// A place in the conversation: which message a question begins with, and which answers it.
struct Turn {
  size_t begin;
  size_t answer;
};

// The turns of `messages`: each begins with what a user says or with the results of tools.
std::vector<Turn> TurnsOf(const std::vector<std::string>& messages);

// JSON with a version, on the disk when this returns; what was at `path` before stays until then.
// Throws a Failure.
void WriteConversation(const std::string& path, const SavedConversation& conversation);

// Throws a Failure that names the file and says why it is no such conversation.
SavedConversation ReadConversation(const std::string& path);

}  // namespace chat
