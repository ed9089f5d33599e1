// SPDX-License-Identifier: Apache-2.0
// include/dsv4/chat.h.
#include "capi/chat.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "capi/enum_table.h"
#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/struct_io.h"
#include "lib/base/status_macros.h"
#include "lib/base/utf8.h"
#include "lib/text/chat_encoder.h"
#include "lib/text/chat_json.h"
#include "lib/text/python_json.h"

namespace dsv4::capi {
namespace {

constexpr EnumValue<absl::string_view> kRoles[] = {
    {DSV4_ROLE_SYSTEM, "system"},       {DSV4_ROLE_USER, "user"},
    {DSV4_ROLE_ASSISTANT, "assistant"}, {DSV4_ROLE_TOOL, "tool"},
    {DSV4_ROLE_DEVELOPER, "developer"}, {DSV4_ROLE_LATEST_REMINDER, "latest_reminder"},
};

constexpr EnumValue<Thinking> kThinkingModes[] = {
    {DSV4_THINKING_OFF, {ThinkingMode::kChat, ReasoningEffort::kNone}},
    {DSV4_THINKING_LOW, {ThinkingMode::kThinking, ReasoningEffort::kLow}},
    {DSV4_THINKING_HIGH, {ThinkingMode::kThinking, ReasoningEffort::kHigh}},
    {DSV4_THINKING_MAX, {ThinkingMode::kThinking, ReasoningEffort::kMax}},
};

constexpr EnumValue<ChatEncoder> kEncoders[] = {
    {DSV4_CHAT_ENCODER_PREVIEW, ChatEncoder::kPreview},
    {DSV4_CHAT_ENCODER_0731, ChatEncoder::k0731},
};

absl::StatusOr<std::string> TextFrom(const char* text, uint64_t length, absl::string_view name) {
  DSV4_RETURN_IF_ERROR(CheckArray(text, length, name));
  const absl::string_view view(text, length);
  const size_t valid = ValidUtf8Prefix(view);
  if (valid < length) return InvalidValue(name, " is not UTF-8 at byte ", valid);
  return std::string(view);
}

absl::StatusOr<ToolCall> ToolCallFrom(const dsv4_tool_call* given, const std::string& name) {
  DSV4_ASSIGN_OR_RETURN(const dsv4_tool_call in, CopyIn(given, name));
  DSV4_RETURN_IF_ERROR(ReservedIsZero(in.reserved, name + ".reserved"));
  DSV4_RETURN_IF_ERROR(NotNull(in.name, name + ".name"));
  DSV4_RETURN_IF_ERROR(NotNull(in.arguments, name + ".arguments"));
  ToolCall call;
  DSV4_ASSIGN_OR_RETURN(call.id, TextFrom(in.id, in.id_length, name + ".id"));
  DSV4_ASSIGN_OR_RETURN(call.name, TextFrom(in.name, in.name_length, name + ".name"));
  DSV4_ASSIGN_OR_RETURN(call.arguments,
                        TextFrom(in.arguments, in.arguments_length, name + ".arguments"));
  return call;
}

// A field that is set means something in the message's role.
absl::Status CheckFieldsOfRole(const dsv4_message& in, absl::string_view name) {
  const bool assistant = in.role == DSV4_ROLE_ASSISTANT, tool = in.role == DSV4_ROLE_TOOL;
  const bool instructs = in.role == DSV4_ROLE_SYSTEM || in.role == DSV4_ROLE_DEVELOPER;
  constexpr absl::string_view kAssistants = "only an assistant's message has one";
  const struct {
    absl::string_view field;
    bool set, allowed;
    absl::string_view rule;
  } fields[] = {
      {"reasoning", in.reasoning_length > 0, assistant, kAssistants},
      {"tool_calls", in.tool_call_count > 0, assistant, "only an assistant's message has some"},
      {"tool_call_id", in.tool_call_id_length > 0, tool, "only a tool's message has one"},
      {"tools", in.tools_length > 0, !tool && in.role != DSV4_ROLE_USER,
       "a user's or a tool's message has none"},
      {"response_format", in.response_format_length > 0, instructs,
       "only a system's or a developer's message has one"},
      {"task", in.task != nullptr, !tool, "a tool's message has none"},
      {"wo_eos", in.wo_eos != 0, assistant, kAssistants},
  };
  for (const auto& field : fields) {
    if (field.set && !field.allowed)
      return InvalidValue(absl::StrCat(name, ".", field.field), " is set, but ", field.rule);
  }
  return absl::OkStatus();
}

absl::StatusOr<ChatMessage> MessageFrom(const dsv4_message* given, const std::string& name) {
  DSV4_ASSIGN_OR_RETURN(const dsv4_message in, CopyIn(given, name));
  ChatMessage message;
  DSV4_ASSIGN_OR_RETURN(const absl::string_view role,
                        EnumFrom(kRoles, in.role, name + ".role", "DSV4_ROLE_"));
  message.role = std::string(role);
  DSV4_RETURN_IF_ERROR(CheckFieldsOfRole(in, name));
  DSV4_RETURN_IF_ERROR(ReservedIsZero(in.reserved, name + ".reserved"));
  DSV4_ASSIGN_OR_RETURN(message.content,
                        TextFrom(in.content, in.content_length, name + ".content"));
  DSV4_ASSIGN_OR_RETURN(message.reasoning_content,
                        TextFrom(in.reasoning, in.reasoning_length, name + ".reasoning"));
  DSV4_RETURN_IF_ERROR(CheckArray(in.tool_calls, in.tool_call_count, name + ".tool_calls"));
  for (uint64_t i = 0; i < in.tool_call_count; ++i) {
    DSV4_ASSIGN_OR_RETURN(
        ToolCall call, ToolCallFrom(in.tool_calls[i], absl::StrCat(name, ".tool_calls[", i, "]")));
    message.tool_calls.push_back(std::move(call));
  }
  DSV4_ASSIGN_OR_RETURN(message.tool_call_id,
                        TextFrom(in.tool_call_id, in.tool_call_id_length, name + ".tool_call_id"));
  DSV4_RETURN_IF_ERROR(CheckArray(in.tools, in.tools_length, name + ".tools"));
  if (in.tools_length > 0) {
    DSV4_ASSIGN_OR_RETURN(message.tools, ParseTools({in.tools, in.tools_length}, name + ".tools"));
  }
  DSV4_RETURN_IF_ERROR(
      CheckArray(in.response_format, in.response_format_length, name + ".response_format"));
  if (in.response_format_length > 0) {
    DSV4_ASSIGN_OR_RETURN(message.response_format,
                          ParsePythonJson({in.response_format, in.response_format_length},
                                          name + ".response_format"));
  }
  if (in.task != nullptr || in.task_length > 0) {
    DSV4_ASSIGN_OR_RETURN(message.task, TextFrom(in.task, in.task_length, name + ".task"));
  }
  DSV4_ASSIGN_OR_RETURN(message.wo_eos, BoolFrom(in.wo_eos, name + ".wo_eos"));
  return message;
}

// A conversation and how to render it.
struct Request {
  std::vector<ChatMessage> messages;
  Rendering rendering;
};

absl::StatusOr<Request> RequestFrom(const char* messages, size_t length,
                                    const dsv4_chat_options* options, ChatEncoder of_model) {
  Request request;
  DSV4_ASSIGN_OR_RETURN(request.rendering, RenderingFrom(options, "options", of_model));
  DSV4_RETURN_IF_ERROR(NotNull(messages, "messages"));
  DSV4_RETURN_IF_ERROR(CheckArray(messages, length, "messages"));
  DSV4_ASSIGN_OR_RETURN(request.messages, ParseMessages({messages, length}));
  return request;
}

}  // namespace

absl::StatusOr<Thinking> ThinkingFrom(dsv4_thinking_mode given, absl::string_view name) {
  return EnumFrom(kThinkingModes, given, name, "DSV4_THINKING_");
}

absl::StatusOr<std::vector<ChatMessage>> MessagesFrom(const dsv4_message* const* given,
                                                      size_t count, absl::string_view name) {
  DSV4_RETURN_IF_ERROR(CheckArray(given, count, name));
  std::vector<ChatMessage> messages;
  for (size_t i = 0; i < count; ++i) {
    DSV4_ASSIGN_OR_RETURN(ChatMessage message,
                          MessageFrom(given[i], absl::StrCat(name, "[", i, "]")));
    messages.push_back(std::move(message));
  }
  return messages;
}

absl::StatusOr<Rendering> RenderingFrom(const dsv4_chat_options* given, absl::string_view name,
                                        ChatEncoder of_model) {
  dsv4_chat_options in = DSV4_CHAT_OPTIONS_INIT;
  if (given != nullptr) {
    DSV4_ASSIGN_OR_RETURN(in, CopyIn(given, name));
  }
  const auto field = [&](absl::string_view of) { return absl::StrCat(name, ".", of); };
  Rendering rendering;
  ChatOptions& options = rendering.options;
  DSV4_ASSIGN_OR_RETURN(const Thinking thinking, ThinkingFrom(in.thinking, field("thinking")));
  options.mode = thinking.mode;
  options.effort = thinking.effort;
  options.encoder = of_model;
  if (in.encoder != DSV4_CHAT_ENCODER_AUTO) {
    DSV4_ASSIGN_OR_RETURN(options.encoder,
                          EnumFrom(kEncoders, in.encoder, field("encoder"), "DSV4_CHAT_ENCODER_"));
  }
  DSV4_RETURN_IF_ERROR(ReservedIsZero(in.reserved, field("reserved")));
  DSV4_ASSIGN_OR_RETURN(const bool keep, BoolFrom(in.keep_reasoning, field("keep_reasoning")));
  options.drop_thinking = !keep;
  DSV4_ASSIGN_OR_RETURN(const bool omit, BoolFrom(in.omit_begin, field("omit_begin")));
  options.begin_of_sentence = !omit;
  DSV4_RETURN_IF_ERROR(CheckArray(in.context, in.context_length, field("context")));
  if (in.context != nullptr) {
    DSV4_ASSIGN_OR_RETURN(rendering.context,
                          ParseMessages({in.context, in.context_length}, field("context")));
  }
  return rendering;
}

}  // namespace dsv4::capi

dsv4_status dsv4_chat_render(const dsv4_tokenizer* tokenizer, const char* messages, size_t length,
                             const dsv4_chat_options* options, int32_t* ids, size_t capacity,
                             size_t* needed, dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(NotNull(tokenizer, "tokenizer"));
    DSV4_RETURN_IF_ERROR(CheckArrayOut(ids, capacity, needed, "ids"));
    DSV4_ASSIGN_OR_RETURN(const Request request,
                          RequestFrom(messages, length, options, tokenizer->encoder));
    DSV4_ASSIGN_OR_RETURN(const std::vector<int32_t> rendered,
                          dsv4::RenderChat(*tokenizer->tokenizer, request.messages,
                                           request.rendering.options, request.rendering.context));
    CopyArrayOut(rendered, ids, capacity, needed);
    return absl::OkStatus();
  });
}

dsv4_status dsv4_chat_render_text(const char* messages, size_t length,
                                  const dsv4_chat_options* options, char* text, size_t capacity,
                                  size_t* needed, dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(CheckArrayOut(text, capacity, needed, "text"));
    DSV4_ASSIGN_OR_RETURN(const Request request,
                          RequestFrom(messages, length, options, dsv4::ChatEncoder::kPreview));
    DSV4_ASSIGN_OR_RETURN(const std::string prompt,
                          dsv4::RenderChatText(request.messages, request.rendering.options,
                                               request.rendering.context));
    std::string utf8;
    dsv4::AppendSurrogatesReplaced(prompt, &utf8);
    CopyArrayOut(utf8, text, capacity, needed);
    return absl::OkStatus();
  });
}
