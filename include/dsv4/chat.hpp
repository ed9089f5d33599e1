// SPDX-License-Identifier: Apache-2.0
//
// Messages, and their rendering to prompts. <dsv4/chat.h> explains prompts,
// and why their text must not be tokenized.
#ifndef DSV4_CHAT_HPP_
#define DSV4_CHAT_HPP_

#include <dsv4/chat.h>
#include <dsv4/tokenizer.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dsv4 {
inline namespace cpp {

// A tool call that the assistant made. `arguments` is JSON.
struct ToolCall {
  std::string id, name, arguments;
};

// One message, with the fields of dsv4_message. An empty text counts as absent.
struct Message {
  dsv4_role role = DSV4_ROLE_USER;
  std::string content = {};
  std::string reasoning = {};
  std::vector<ToolCall> tool_calls = {};
  std::string tool_call_id = {};
  std::string tools = {};            // JSON
  std::string response_format = {};  // JSON
  std::string task = {};
  bool wo_eos = false;
};

// How a conversation is rendered, with the fields of dsv4_chat_options.
struct ChatOptions {
  dsv4_thinking_mode thinking = DSV4_THINKING_OFF;
  bool keep_reasoning = false;
  bool omit_begin = false;
  dsv4_chat_encoder encoder = DSV4_CHAT_ENCODER_AUTO;
  std::string context = {};  // JSON
};

namespace detail {

// Messages as C structs. The messages must outlive the object.
class MessageViews {
 public:
  explicit MessageViews(Span<const Message> messages) {
    std::size_t call_count = 0;
    for (const Message& message : messages) call_count += message.tool_calls.size();
    // What is pointed to must not move.
    calls_.reserve(call_count);
    call_list_.reserve(call_count);
    messages_.reserve(messages.size());
    for (const Message& message : messages) Add(message);
    for (const dsv4_message& message : messages_) list_.push_back(&message);
  }
  MessageViews(const MessageViews&) = delete;
  MessageViews& operator=(const MessageViews&) = delete;

  const dsv4_message* const* data() const noexcept { return list_.data(); }
  std::size_t size() const noexcept { return list_.size(); }

 private:
  void Add(const Message& in) {
    dsv4_message out = DSV4_MESSAGE_INIT;
    out.role = in.role;
    out.content = in.content.data();
    out.content_length = in.content.size();
    out.reasoning = in.reasoning.data();
    out.reasoning_length = in.reasoning.size();
    out.tool_calls = call_list_.data() + call_list_.size();
    out.tool_call_count = in.tool_calls.size();
    out.tool_call_id = in.tool_call_id.data();
    out.tool_call_id_length = in.tool_call_id.size();
    out.tools = in.tools.data();
    out.tools_length = in.tools.size();
    out.response_format = in.response_format.data();
    out.response_format_length = in.response_format.size();
    out.task = in.task.empty() ? nullptr : in.task.data();
    out.task_length = in.task.size();
    out.wo_eos = in.wo_eos ? 1 : 0;
    for (const ToolCall& call : in.tool_calls) Add(call);
    messages_.push_back(out);
  }

  void Add(const ToolCall& in) {
    dsv4_tool_call out = DSV4_TOOL_CALL_INIT;
    out.id = in.id.data();
    out.id_length = in.id.size();
    out.name = in.name.data();
    out.name_length = in.name.size();
    out.arguments = in.arguments.data();
    out.arguments_length = in.arguments.size();
    calls_.push_back(out);
    call_list_.push_back(&calls_.back());
  }

  std::vector<dsv4_tool_call> calls_;
  std::vector<const dsv4_tool_call*> call_list_;
  std::vector<dsv4_message> messages_;
  std::vector<const dsv4_message*> list_;
};

// Options as a C struct. The options must outlive the object.
class ChatOptionsView {
 public:
  explicit ChatOptionsView(const ChatOptions& in) {
    view_.thinking = in.thinking;
    view_.keep_reasoning = in.keep_reasoning ? 1 : 0;
    view_.omit_begin = in.omit_begin ? 1 : 0;
    view_.encoder = in.encoder;
    view_.context = in.context.empty() ? nullptr : in.context.data();
    view_.context_length = in.context.size();
  }

  const dsv4_chat_options* get() const noexcept { return &view_; }

 private:
  dsv4_chat_options view_ = DSV4_CHAT_OPTIONS_INIT;
};

}  // namespace detail

// Renders a JSON array of messages in the form of OpenAI's chat API to token ids, up to the point
// where the assistant's turn begins.
inline std::vector<int32_t> RenderChat(const TokenizerView& tokenizer, std::string_view json,
                                       const ChatOptions& options = {}) {
  const detail::ChatOptionsView how(options);
  return detail::ReadAll<std::vector<int32_t>>(
      json.size() / 2 + 256, [&](int32_t* ids, std::size_t capacity, std::size_t* needed) {
        detail::Call(dsv4_chat_render, tokenizer.get(), json.data(), json.size(), how.get(), ids,
                     capacity, needed);
      });
}

// Renders the same prompt to text, for display and comparison. Do not tokenize it.
inline std::string RenderChatText(std::string_view json, const ChatOptions& options = {}) {
  const detail::ChatOptionsView how(options);
  return detail::ReadAll<std::string>(
      json.size() + 1024, [&](char* text, std::size_t capacity, std::size_t* needed) {
        detail::Call(dsv4_chat_render_text, json.data(), json.size(), how.get(), text, capacity,
                     needed);
      });
}

}  // namespace cpp
}  // namespace dsv4

#endif  // DSV4_CHAT_HPP_
