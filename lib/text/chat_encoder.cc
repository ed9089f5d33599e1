// SPDX-License-Identifier: Apache-2.0
#include "lib/text/chat_encoder.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lib/base/error.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"
#include "lib/base/utf8.h"
#include "lib/text/chat_profile.h"
#include "lib/text/chat_prompt.h"
#include "lib/text/chat_turns.h"
#include "lib/text/python_json.h"
#include "lib/text/tool_prompt.h"

namespace dsv4 {
namespace {

constexpr absl::string_view kResponseFormat =
    "\n\n## Response Format:\n\n"
    "You MUST strictly adhere to the following schema to reply:\n";

struct Task {
  absl::string_view name;
  ControlToken token;
};
constexpr Task kTasks[] = {
    {"action", ControlToken::kAction},       {"query", ControlToken::kQuery},
    {"authority", ControlToken::kAuthority}, {"domain", ControlToken::kDomain},
    {"title", ControlToken::kTitle},         {"read_url", ControlToken::kReadUrl},
};

absl::StatusOr<ControlToken> TaskToken(const ChatTurn& turn) {
  std::string known;
  for (const Task& task : kTasks) {
    if (task.name == *turn.Task()) return task.token;
    absl::StrAppend(&known, known.empty() ? "" : ", ", task.name);
  }
  return InvalidArgument(turn.Place(), ".task is ", Quoted(*turn.Task()), "; expected one of ",
                         known);
}

absl::Status CheckText(absl::Span<const ChatMessage> messages, absl::string_view list) {
  for (size_t i = 0; i < messages.size(); ++i) {
    const auto check = [&](absl::string_view text, const auto&... key) {
      const size_t valid = ValidWtf8Prefix(text);
      if (valid == text.size()) return absl::OkStatus();
      return InvalidArgument(list, "[", i, "].", key..., " is not UTF-8 at byte ", valid);
    };
    DSV4_RETURN_IF_ERROR(check(messages[i].content, "content"));
    DSV4_RETURN_IF_ERROR(check(messages[i].reasoning_content, "reasoning_content"));
    const std::vector<ToolCall>& calls = messages[i].tool_calls;
    for (size_t k = 0; k < calls.size(); ++k) {
      DSV4_RETURN_IF_ERROR(check(calls[k].name, "tool_calls[", k, "].function.name"));
      DSV4_RETURN_IF_ERROR(check(calls[k].arguments, "tool_calls[", k, "].function.arguments"));
    }
  }
  return absl::OkStatus();
}

class TurnWriter {
 public:
  TurnWriter(const ChatTurns& turns, const ChatOptions& options, ChatPrompt* prompt)
      : turns_(turns.turns),
        thinks_(options.mode == ThinkingMode::kThinking),
        effort_(EffortPrompt(options.encoder, options.effort)),
        // Turns from here on have their reasoning.
        reasoning_begin_(turns.drops_thinking ? EndOfLastUserTurn(turns_) : 0),
        prompt_(*prompt) {}

  absl::Status Write(size_t i) {
    const ChatTurn& turn = turns_[i];
    if (i == 0 && thinks_) prompt_.Template(effort_);
    if (turn.IsUser()) {
      WriteUser(turn);
    } else if (turn.HasRole("system")) {
      prompt_.Text(turn.message->content);
      WriteInstructions(*turn.message);
    } else if (turn.HasRole("developer")) {
      if (turn.message->content.empty()) {
        return InvalidArgument(turn.Place(), ".content of a developer message is empty");
      }
      prompt_.Control(ControlToken::kUser);
      prompt_.Text(turn.message->content);
      WriteInstructions(*turn.message);
    } else if (turn.HasRole("latest_reminder")) {
      prompt_.Control(ControlToken::kLatestReminder);
      prompt_.Text(turn.message->content);
    } else if (turn.HasRole("assistant")) {
      DSV4_RETURN_IF_ERROR(WriteAssistant(i));
    } else {
      return Unsupported(turn.Place(), ": role ", Quoted(turn.Role()), " is not supported");
    }
    return WriteTransition(i);
  }

 private:
  void WriteInstructions(const ChatMessage& message) {
    if (!message.tools.empty()) {
      prompt_.Template("\n\n");
      AppendToolsSection(message.tools, &prompt_);
    }
    if (message.response_format && PythonTruth(*message.response_format)) {
      prompt_.Template(kResponseFormat);
      prompt_.Json(*message.response_format);
    }
  }

  void WriteUser(const ChatTurn& turn) {
    prompt_.Control(ControlToken::kUser);
    for (const ChatMessage* const& part : turn.parts) {
      if (&part != &turn.parts.front()) prompt_.Template("\n\n");
      if (part->role == "tool") {
        AppendToolResult(part->content, &prompt_);
      } else {
        prompt_.Text(part->content);
      }
    }
  }

  absl::Status WriteAssistant(size_t i) {
    const ChatTurn& turn = turns_[i];
    const ChatMessage& message = *turn.message;
    // What answers a task has no reasoning.
    const bool answers_task = i > 0 && turns_[i - 1].Task();
    if (thinks_ && !answers_task && i >= reasoning_begin_) {
      prompt_.Text(message.reasoning_content);
      prompt_.Control(ControlToken::kThinkEnd);
    }
    prompt_.Text(message.content);
    if (!message.tool_calls.empty()) {
      DSV4_RETURN_IF_ERROR(AppendToolCalls(message.tool_calls, turn.Place(), &prompt_));
    }
    if (!message.wo_eos) prompt_.Control(ControlToken::kEndOfSentence);
    return absl::OkStatus();
  }

  // What stands between turn `i` and an assistant's or reminder's turn, or the end.
  absl::Status WriteTransition(size_t i) {
    const ChatTurn& turn = turns_[i];
    if (i + 1 < turns_.size() && !turns_[i + 1].HasRole("assistant") &&
        !turns_[i + 1].HasRole("latest_reminder")) {
      return absl::OkStatus();
    }
    if (turn.Task()) {
      DSV4_ASSIGN_OR_RETURN(const ControlToken token, TaskToken(turn));
      if (token == ControlToken::kAction) OpenAssistantTurn(thinks_);
      prompt_.Control(token);
    } else if (turn.IsUser() || turn.HasRole("developer")) {
      OpenAssistantTurn(thinks_ && i + 1 >= reasoning_begin_);
    }
    return absl::OkStatus();
  }

  void OpenAssistantTurn(bool with_reasoning) {
    prompt_.Control(ControlToken::kAssistant);
    prompt_.Control(with_reasoning ? ControlToken::kThink : ControlToken::kThinkEnd);
  }

  absl::Span<const ChatTurn> turns_;
  const bool thinks_;
  const absl::string_view effort_;
  const size_t reasoning_begin_;
  ChatPrompt& prompt_;
};

absl::StatusOr<ChatPrompt> BuildPrompt(absl::Span<const ChatMessage> messages,
                                       const ChatOptions& options,
                                       absl::Span<const ChatMessage> context) {
  DSV4_RETURN_IF_ERROR(CheckText(context, "context"));
  DSV4_RETURN_IF_ERROR(CheckText(messages, "messages"));
  const ChatTurns turns = TurnsOf(context, messages, options);
  ChatPrompt prompt;
  if (options.begin_of_sentence && !turns.has_context) {
    prompt.Control(ControlToken::kBeginOfSentence);
  }
  TurnWriter writer(turns, options, &prompt);
  for (size_t i = turns.first_rendered; i < turns.turns.size(); ++i) {
    DSV4_RETURN_IF_ERROR(writer.Write(i));
  }
  return prompt;
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> RenderChat(const Tokenizer& tokenizer,
                                                absl::Span<const ChatMessage> messages,
                                                const ChatOptions& options,
                                                absl::Span<const ChatMessage> context) {
  DSV4_ASSIGN_OR_RETURN(const ChatPrompt prompt, BuildPrompt(messages, options, context));
  return prompt.Encode(tokenizer);
}

absl::StatusOr<std::string> RenderChatText(absl::Span<const ChatMessage> messages,
                                           const ChatOptions& options,
                                           absl::Span<const ChatMessage> context) {
  DSV4_ASSIGN_OR_RETURN(ChatPrompt prompt, BuildPrompt(messages, options, context));
  return std::move(prompt).text();
}

}  // namespace dsv4
