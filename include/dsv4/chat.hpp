// SPDX-License-Identifier: Apache-2.0
//
// Renders messages to prompts and parses completions to messages. <dsv4/chat.h> explains prompts,
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

// How a conversation is rendered, with the fields of dsv4_chat_options. At most one of the two
// contexts may be given.
struct ChatOptions {
  dsv4_thinking_mode thinking = DSV4_THINKING_OFF;
  bool keep_reasoning = false;
  bool omit_begin = false;
  std::vector<Message> context = {};
  std::string context_json = {};
  dsv4_chat_encoder encoder = DSV4_CHAT_ENCODER_AUTO;
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
  explicit ChatOptionsView(const ChatOptions& in) : context_(in.context) {
    view_.thinking = in.thinking;
    view_.keep_reasoning = in.keep_reasoning ? 1 : 0;
    view_.omit_begin = in.omit_begin ? 1 : 0;
    view_.context = in.context_json.empty() ? nullptr : in.context_json.data();
    view_.context_length = in.context_json.size();
    view_.context_messages = context_.size() == 0 ? nullptr : context_.data();
    view_.context_message_count = context_.size();
    view_.encoder = in.encoder;
  }

  const dsv4_chat_options* get() const noexcept { return &view_; }

 private:
  MessageViews context_;
  dsv4_chat_options view_ = DSV4_CHAT_OPTIONS_INIT;
};

}  // namespace detail

// Renders a conversation to token ids, up to the point where the assistant's turn begins.
inline std::vector<int32_t> RenderChat(const TokenizerView& tokenizer, Span<const Message> messages,
                                       const ChatOptions& options = {}) {
  const detail::MessageViews views(messages);
  const detail::ChatOptionsView how(options);
  return detail::ReadAll<std::vector<int32_t>>(
      256, [&](int32_t* ids, std::size_t capacity, std::size_t* needed) {
        detail::Call(dsv4_chat_render_messages, tokenizer.get(), views.data(), views.size(),
                     how.get(), ids, capacity, needed);
      });
}

// Renders messages given as JSON in the form of OpenAI's chat API.
inline std::vector<int32_t> RenderChatJson(const TokenizerView& tokenizer, std::string_view json,
                                           const ChatOptions& options = {}) {
  const detail::ChatOptionsView how(options);
  return detail::ReadAll<std::vector<int32_t>>(
      json.size() / 2 + 256, [&](int32_t* ids, std::size_t capacity, std::size_t* needed) {
        detail::Call(dsv4_chat_render_json, tokenizer.get(), json.data(), json.size(), how.get(),
                     ids, capacity, needed);
      });
}

// Renders a conversation to text, for display and comparison. Do not tokenize it.
inline std::string RenderChatText(Span<const Message> messages, const ChatOptions& options = {}) {
  const detail::MessageViews views(messages);
  const detail::ChatOptionsView how(options);
  return detail::ReadAll<std::string>(
      1024, [&](char* text, std::size_t capacity, std::size_t* needed) {
        detail::Call(dsv4_chat_render_text, views.data(), views.size(), how.get(), text, capacity,
                     needed);
      });
}

// Renders messages given as JSON to text.
inline std::string RenderChatTextJson(std::string_view json, const ChatOptions& options = {}) {
  const detail::ChatOptionsView how(options);
  return detail::ReadAll<std::string>(
      json.size() + 1024, [&](char* text, std::size_t capacity, std::size_t* needed) {
        detail::Call(dsv4_chat_render_text_json, json.data(), json.size(), how.get(), text,
                     capacity, needed);
      });
}

// Parses a whole completion to the assistant's message, a JSON object.
inline std::string ParseChat(std::string_view completion,
                             dsv4_thinking_mode thinking = DSV4_THINKING_OFF) {
  return detail::ReadAll<std::string>(
      completion.size() + 256, [&](char* json, std::size_t capacity, std::size_t* needed) {
        detail::Call(dsv4_chat_parse, completion.data(), completion.size(), thinking, json,
                     capacity, needed);
      });
}

}  // namespace cpp
}  // namespace dsv4

#endif  // DSV4_CHAT_HPP_
