// SPDX-License-Identifier: Apache-2.0
// Messages and options of the chat encoder (chat_encoder.h), as plain structs. MessagesFromJson
// (chat_json.h) fills them from JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lib/io/json.h"

namespace dsv4 {

// All texts of these structs are UTF-8. WTF-8 (unicode.h) is accepted, because Python's strings can
// have unpaired surrogates.

struct ToolCall {
  std::string id;  // tool results refer to it; may be empty
  std::string name;
  // JSON, in the dialect of ParsePythonJson. An object has the parameters. Text that is not JSON
  // becomes the only parameter "arguments". Other JSON is an error.
  std::string arguments;
};

struct ChatMessage {
  // "system", "user", "assistant", "tool", "latest_reminder" or "developer".
  std::string role;
  std::string content;                    // of a developer never empty
  std::string reasoning_content = {};     // assistant
  std::vector<ToolCall> tool_calls = {};  // assistant
  std::string tool_call_id = {};          // tool: the call that it answers
  bool wo_eos = false;                    // assistant: leave the end-of-sentence token out
  // Rendered in system and developer messages. On all roles except user and tool they also keep
  // earlier reasoning (ChatOptions::drop_thinking). Function definitions from ToolsFromJson.
  std::vector<JsonValue> tools = {};
  std::optional<JsonValue> response_format = {};  // system, developer
  // A quick task for the model after this message: "action", "query", "authority", "domain",
  // "title" or "read_url". Not for tool results.
  std::optional<std::string> task = {};
};

enum class ThinkingMode {
  kChat,      // the assistant answers at once, after </think>
  kThinking,  // turns after the last user message reason first, after <think>
};

// The published encoders. They differ only in the instructions about effort.
enum class ChatEncoder {
  kPreview,  // of DeepSeek-V4-Flash and -Pro of April, and their DSpark variants
  k0731,     // of DeepSeek-V4-Flash-0731 and -Pro-0813
};

// In thinking mode the prompt begins with an instruction for some efforts (chat_profile.h).
enum class ReasoningEffort {
  kNone,  // the encoder's default, which writes nothing
  kLow,   // writes nothing
  kHigh,  // writes nothing in kPreview
  kMax,
};

struct ChatOptions {
  ThinkingMode mode = ThinkingMode::kChat;
  ReasoningEffort effort = ReasoningEffort::kNone;
  ChatEncoder encoder = ChatEncoder::kPreview;
  // In thinking mode: leave out the reasoning of turns before the last user or developer message,
  // and earlier developer messages. No effect if any message has tools.
  bool drop_thinking = true;
  bool begin_of_sentence = true;  // no effect with a context
};

}  // namespace dsv4
