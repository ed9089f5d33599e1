// SPDX-License-Identifier: Apache-2.0
// include/dsv4/chat.h.
#include <dsv4/chat.h>

#include <string>
#include <vector>

#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/struct_io.h"
#include "lib/base/status_macros.h"
#include "lib/text/chat_encoder.h"

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

absl::StatusOr<ThinkingMode> ThinkingFrom(dsv4_thinking_mode mode) {
  switch (mode) {
    case DSV4_THINKING_OFF:
      return ThinkingMode::kChat;
    case DSV4_THINKING_HIGH:
      return ThinkingMode::kThinking;
    default:
      return InvalidArgument("thinking is ", mode, "; expected a DSV4_THINKING_ value");
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

}  // namespace
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
    DSV4_ASSIGN_OR_RETURN(const dsv4::ThinkingMode mode, ThinkingFrom(thinking));
    std::vector<dsv4::ChatMessage> conversation;
    for (size_t i = 0; i < count; ++i) {
      DSV4_ASSIGN_OR_RETURN(dsv4::ChatMessage message,
                            MessageFrom(messages[i], absl::StrCat("messages[", i, "]")));
      conversation.push_back(std::move(message));
    }
    DSV4_ASSIGN_OR_RETURN(const std::vector<int32_t> rendered,
                          dsv4::RenderChat(*tokenizer->tokenizer, conversation, mode));
    CopyArrayOut(rendered, ids, capacity, needed);
    return absl::OkStatus();
  });
}
