// SPDX-License-Identifier: Apache-2.0
// include/dsv4/chat.h.
#include "capi/chat.h"

#include <string>
#include <vector>

#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/struct_io.h"
#include "lib/base/status_macros.h"
#include "lib/text/chat_encoder.h"
#include "lib/text/chat_json.h"
#include "lib/text/completion_parser.h"
#include "lib/text/python_json.h"
#include "lib/text/unicode.h"

namespace dsv4::capi {
namespace {

absl::StatusOr<std::string> RoleFrom(dsv4_role role, absl::string_view name) {
  switch (role) {
    case DSV4_ROLE_SYSTEM:
      return "system";
    case DSV4_ROLE_USER:
      return "user";
    case DSV4_ROLE_ASSISTANT:
      return "assistant";
    default:
      return InvalidArgument(name, ".role is ", role, "; expected a DSV4_ROLE_ value");
  }
}

absl::StatusOr<ChatMessage> MessageFrom(const dsv4_message* given, const std::string& name) {
  DSV4_ASSIGN_OR_RETURN(const dsv4_message in, CopyIn(given, name));
  ChatMessage message;
  DSV4_ASSIGN_OR_RETURN(message.role, RoleFrom(in.role, name));
  DSV4_RETURN_IF_ERROR(CheckArray(in.content, in.content_length, name + ".content"));
  DSV4_RETURN_IF_ERROR(CheckArray(in.reasoning, in.reasoning_length, name + ".reasoning"));
  if (in.reasoning_length > 0 && in.role != DSV4_ROLE_ASSISTANT)
    return InvalidArgument(name, ".reasoning is set, but only an assistant's turn has one");
  message.content.assign(in.content, in.content + in.content_length);
  message.reasoning_content.assign(in.reasoning, in.reasoning + in.reasoning_length);
  return message;
}

absl::StatusOr<bool> BoolFrom(int32_t value, absl::string_view name) {
  if (value != 0 && value != 1) return InvalidArgument(name, " is ", value, "; expected 0 or 1");
  return value == 1;
}

struct Conversation {
  std::vector<ChatMessage> messages, context;
  ChatOptions options;
};

absl::StatusOr<Conversation> ConversationFrom(const char* messages, size_t length,
                                              const dsv4_chat_options* given) {
  dsv4_chat_options in = DSV4_CHAT_OPTIONS_INIT;
  if (given != nullptr) {
    DSV4_ASSIGN_OR_RETURN(in, CopyIn(given, "options"));
  }
  Conversation conversation;
  ChatOptions& options = conversation.options;
  DSV4_ASSIGN_OR_RETURN(const Thinking thinking, ThinkingFrom(in.thinking, "options.thinking"));
  options.mode = thinking.mode;
  options.effort = thinking.effort;
  DSV4_ASSIGN_OR_RETURN(const bool keep, BoolFrom(in.keep_reasoning, "options.keep_reasoning"));
  options.drop_thinking = !keep;
  DSV4_ASSIGN_OR_RETURN(const bool omit, BoolFrom(in.omit_begin, "options.omit_begin"));
  options.begin_of_sentence = !omit;
  DSV4_RETURN_IF_ERROR(CheckArray(in.context, in.context_length, "options.context"));
  if (in.context != nullptr) {
    DSV4_ASSIGN_OR_RETURN(conversation.context,
                          ParseMessages({in.context, in.context_length}, "options.context"));
  }
  DSV4_RETURN_IF_ERROR(NotNull(messages, "messages"));
  DSV4_RETURN_IF_ERROR(CheckArray(messages, length, "messages"));
  DSV4_ASSIGN_OR_RETURN(conversation.messages, ParseMessages({messages, length}));
  return conversation;
}

}  // namespace

absl::StatusOr<Thinking> ThinkingFrom(dsv4_thinking_mode given, absl::string_view name) {
  switch (given) {
    case DSV4_THINKING_OFF:
      return Thinking{ThinkingMode::kChat, ReasoningEffort::kNone};
    case DSV4_THINKING_HIGH:
      return Thinking{ThinkingMode::kThinking, ReasoningEffort::kHigh};
    case DSV4_THINKING_MAX:
      return Thinking{ThinkingMode::kThinking, ReasoningEffort::kMax};
    default:
      return InvalidArgument(name, " is ", given, "; expected a DSV4_THINKING_ value");
  }
}

}  // namespace dsv4::capi

dsv4_status dsv4_chat_render(const dsv4_tokenizer* tokenizer, const dsv4_message* const* messages,
                             size_t count, dsv4_thinking_mode thinking, int32_t* ids,
                             size_t capacity, size_t* needed, dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(NotNull(tokenizer, "tokenizer"));
    DSV4_RETURN_IF_ERROR(CheckArray(messages, count, "messages"));
    DSV4_RETURN_IF_ERROR(CheckArray(ids, capacity, "ids"));
    DSV4_RETURN_IF_ERROR(NotNull(needed, "needed"));
    if (count == 0) return dsv4::InvalidArgument("messages is empty");
    DSV4_ASSIGN_OR_RETURN(const Thinking how, ThinkingFrom(thinking, "thinking"));
    std::vector<dsv4::ChatMessage> conversation;
    for (size_t i = 0; i < count; ++i) {
      DSV4_ASSIGN_OR_RETURN(dsv4::ChatMessage message,
                            MessageFrom(messages[i], absl::StrCat("messages[", i, "]")));
      conversation.push_back(std::move(message));
    }
    DSV4_ASSIGN_OR_RETURN(const std::vector<int32_t> rendered,
                          dsv4::RenderChat(*tokenizer->tokenizer, conversation,
                                           {.mode = how.mode, .effort = how.effort}));
    CopyArrayOut(rendered, ids, capacity, needed);
    return absl::OkStatus();
  });
}

dsv4_status dsv4_chat_render_json(const dsv4_tokenizer* tokenizer, const char* messages,
                                  size_t length, const dsv4_chat_options* options, int32_t* ids,
                                  size_t capacity, size_t* needed, dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(NotNull(tokenizer, "tokenizer"));
    DSV4_RETURN_IF_ERROR(CheckArray(ids, capacity, "ids"));
    DSV4_RETURN_IF_ERROR(NotNull(needed, "needed"));
    DSV4_ASSIGN_OR_RETURN(const Conversation conversation,
                          ConversationFrom(messages, length, options));
    DSV4_ASSIGN_OR_RETURN(const std::vector<int32_t> rendered,
                          dsv4::RenderChat(*tokenizer->tokenizer, conversation.messages,
                                           conversation.options, conversation.context));
    CopyArrayOut(rendered, ids, capacity, needed);
    return absl::OkStatus();
  });
}

dsv4_status dsv4_chat_render_text_json(const char* messages, size_t length,
                                       const dsv4_chat_options* options, char* text,
                                       size_t capacity, size_t* needed,
                                       dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(CheckArray(text, capacity, "text"));
    DSV4_RETURN_IF_ERROR(NotNull(needed, "needed"));
    DSV4_ASSIGN_OR_RETURN(const Conversation conversation,
                          ConversationFrom(messages, length, options));
    DSV4_ASSIGN_OR_RETURN(
        const std::string prompt,
        dsv4::RenderChatText(conversation.messages, conversation.options, conversation.context));
    std::string utf8;
    dsv4::AppendSurrogatesReplaced(prompt, &utf8);
    CopyArrayOut(utf8, text, capacity, needed);
    return absl::OkStatus();
  });
}

dsv4_status dsv4_chat_parse(const char* completion, size_t length, dsv4_thinking_mode thinking,
                            char* json, size_t capacity, size_t* needed,
                            dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(CheckArray(completion, length, "completion"));
    DSV4_RETURN_IF_ERROR(CheckArray(json, capacity, "json"));
    DSV4_RETURN_IF_ERROR(NotNull(needed, "needed"));
    DSV4_ASSIGN_OR_RETURN(const Thinking how, ThinkingFrom(thinking, "thinking"));
    DSV4_ASSIGN_OR_RETURN(const dsv4::ChatMessage message,
                          dsv4::ParseCompletion({completion, length}, how.mode));
    std::string written;
    dsv4::AppendPythonJson(dsv4::AssistantToJson(message), &written);
    CopyArrayOut(written, json, capacity, needed);
    return absl::OkStatus();
  });
}
