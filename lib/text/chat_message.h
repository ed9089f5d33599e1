// SPDX-License-Identifier: Apache-2.0
// A conversation as the chat encoder takes it: plain structures, to be filled by hand or by
// ParseMessages (chat_json.h). What they render to is chat_encoder.h's.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lib/io/json.h"

namespace dsv4 {

// All texts of these structures are UTF-8; WTF-8 (unicode.h) is accepted, because Python's strings
// hold unpaired surrogates.

struct ToolCall {
  std::string id;  // by which its result is found; empty for none
  std::string name;
  // JSON, read as ParsePythonJson does. An object gives the parameters; text that is no JSON is
  // taken as the one parameter "arguments"; other JSON is an error.
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
  // System and developer write them; on roles but user and tool they also keep earlier reasoning
  // (ChatOptions::drop_thinking). Function definitions as ParseTools gives them.
  std::vector<JsonValue> tools = {};
  std::optional<JsonValue> response_format = {};  // system, developer
  // A quick task that the model is to do after this message: "action", "query", "authority",
  // "domain", "title" or "read_url". Not of a tool result.
  std::optional<std::string> task = {};
};

enum class ThinkingMode {
  kChat,      // the assistant answers at once, after </think>
  kThinking,  // turns after the last user message reason first, after <think>
};

// Of the published encoders. They differ in the efforts alone.
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
  // and earlier developer messages altogether. Off by itself when any message brings tools.
  bool drop_thinking = true;
  bool begin_of_sentence = true;  // only where no context goes before
};

}  // namespace dsv4
