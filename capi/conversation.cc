// SPDX-License-Identifier: Apache-2.0
// include/dsv4/conversation.h.
#include <dsv4/conversation.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "capi/chat.h"
#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/parser_event.h"
#include "capi/step_result.h"
#include "capi/struct_io.h"
#include "lib/base/status_macros.h"
#include "lib/runtime/conversation.h"
#include "lib/text/chat_json.h"
#include "lib/text/python_json.h"
#include "lib/text/unicode.h"

namespace dsv4::capi {
namespace {

using Messages = std::vector<ChatMessage>;

absl::StatusOr<Messages> MessagesFromText(const char* messages, size_t length) {
  DSV4_RETURN_IF_ERROR(NotNull(messages, "messages"));
  DSV4_RETURN_IF_ERROR(CheckArray(messages, length, "messages"));
  return ParseMessages({messages, length});
}

absl::StatusOr<ChatOptions> OptionsFrom(const dsv4_chat_options* options, ChatEncoder of_model) {
  DSV4_ASSIGN_OR_RETURN(Rendering rendering, RenderingFrom(options, "options", of_model));
  if (!rendering.context.empty())
    return InvalidValue("options.context", " is set, but a session has all messages itself");
  return rendering.options;
}

// A new handle with a conversation on what `messages()` returns.
template <class MakeMessages>
absl::Status OpenOn(dsv4_engine* engine, const dsv4_session_options* session_options,
                    const dsv4_chat_options* options, dsv4_session** session,
                    MakeMessages&& messages) {
  DSV4_RETURN_IF_ERROR(NotNull(session, "session"));
  DSV4_RETURN_IF_ERROR(NotNull(engine, "engine"));
  DSV4_ASSIGN_OR_RETURN(const ChatOptions made_options,
                        OptionsFrom(options, engine->tokenizer.encoder));
  DSV4_ASSIGN_OR_RETURN(Messages made_messages, messages());
  DSV4_ASSIGN_OR_RETURN(std::unique_ptr<dsv4_session> handle,
                        OpenSession(engine, session_options, "session_options"));
  DSV4_ASSIGN_OR_RETURN(
      handle->conversation,
      Conversation::Open(handle->session.get(), std::move(made_messages), made_options));
  *session = handle.release();
  return absl::OkStatus();
}

absl::Status HasMessages(const dsv4_session& handle) {
  if (handle.conversation != nullptr) return absl::OkStatus();
  return InvalidValue("session", " was not opened on messages");
}

// Runs `body(conversation)` with the session to itself.
template <class Body>
absl::Status WithConversation(dsv4_session* handle, Body&& body) {
  return WithExclusive(handle, [&](Session&) -> absl::Status {
    DSV4_RETURN_IF_ERROR(HasMessages(*handle));
    return body(*handle->conversation);
  });
}

// The same, concurrently with other reading calls.
template <class Body>
absl::Status WithReadConversation(const dsv4_session* handle, Body&& body) {
  return WithReading(handle, [&](const Session&) -> absl::Status {
    DSV4_RETURN_IF_ERROR(HasMessages(*handle));
    return body(static_cast<const Conversation&>(*handle->conversation));
  });
}

void CopyJsonOut(const JsonValue& value, char* json, size_t capacity, size_t* needed) {
  std::string written, utf8;
  AppendPythonJson(value, &written);
  AppendSurrogatesReplaced(written, &utf8);
  CopyArrayOut(utf8, json, capacity, needed);
}

}  // namespace
}  // namespace dsv4::capi

dsv4_status dsv4_session_open_messages(dsv4_engine* engine,
                                       const dsv4_session_options* session_options,
                                       const dsv4_message* const* messages, size_t count,
                                       const dsv4_chat_options* options, dsv4_session** session,
                                       dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&] {
    return OpenOn(engine, session_options, options, session,
                  [&] { return MessagesFrom(messages, count, "messages"); });
  });
}

dsv4_status dsv4_session_open_json(dsv4_engine* engine, const dsv4_session_options* session_options,
                                   const char* messages, size_t length,
                                   const dsv4_chat_options* options, dsv4_session** session,
                                   dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&] {
    return OpenOn(engine, session_options, options, session,
                  [&] { return MessagesFromText(messages, length); });
  });
}

dsv4_status dsv4_session_append_messages(dsv4_session* session, const dsv4_message* const* messages,
                                         size_t count, dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&] {
    return WithConversation(session, [&](dsv4::Conversation& conversation) -> absl::Status {
      DSV4_ASSIGN_OR_RETURN(Messages made, MessagesFrom(messages, count, "messages"));
      return conversation.Append(std::move(made));
    });
  });
}

dsv4_status dsv4_session_append_json(dsv4_session* session, const char* messages, size_t length,
                                     dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&] {
    return WithConversation(session, [&](dsv4::Conversation& conversation) -> absl::Status {
      DSV4_ASSIGN_OR_RETURN(Messages made, MessagesFromText(messages, length));
      return conversation.Append(std::move(made));
    });
  });
}

dsv4_status dsv4_session_step_events(dsv4_session* session, dsv4_parser_event_fn callback,
                                     void* user, dsv4_step_result* result,
                                     dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&] {
    return WithConversation(session, [&](dsv4::Conversation& conversation) -> absl::Status {
      if (callback == nullptr) return dsv4::InvalidValue("callback", " is NULL");
      if (result != nullptr) DSV4_RETURN_IF_ERROR(StructSize(result, "result").status());
      const absl::StatusOr<dsv4::StepResult> step =
          conversation.Step([&](const dsv4::ParserEvent& event) {
            const dsv4_parser_event out = EventOf(event);
            callback(user, &out);
          });
      return result != nullptr ? CopyStepOut(step, result) : step.status();
    });
  });
}

dsv4_status dsv4_session_end_turn(dsv4_session* session, dsv4_parser_event_fn callback, void* user,
                                  dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&] {
    return WithConversation(session, [&](dsv4::Conversation& conversation) {
      conversation.EndTurn([&](const dsv4::ParserEvent& event) {
        if (callback == nullptr) return;
        const dsv4_parser_event out = EventOf(event);
        callback(user, &out);
      });
      return absl::OkStatus();
    });
  });
}

dsv4_status dsv4_session_get_message_count(const dsv4_session* session, size_t* count,
                                           dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&] {
    return WithReadConversation(session, [&](const dsv4::Conversation& c) -> absl::Status {
      DSV4_RETURN_IF_ERROR(NotNull(count, "count"));
      *count = c.messages().size();
      return absl::OkStatus();
    });
  });
}

dsv4_status dsv4_session_truncate_messages(dsv4_session* session, size_t count,
                                           dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&] {
    return WithConversation(session, [&](dsv4::Conversation& c) { return c.Truncate(count); });
  });
}

dsv4_status dsv4_session_replace_messages(dsv4_session* session, size_t first, size_t count,
                                          const dsv4_message* const* messages, size_t message_count,
                                          dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&] {
    return WithConversation(session, [&](dsv4::Conversation& conversation) -> absl::Status {
      DSV4_ASSIGN_OR_RETURN(Messages made, MessagesFrom(messages, message_count, "messages"));
      return conversation.Replace(first, count, std::move(made));
    });
  });
}

dsv4_status dsv4_session_replace_json(dsv4_session* session, size_t first, size_t count,
                                      const char* messages, size_t length,
                                      dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&] {
    return WithConversation(session, [&](dsv4::Conversation& conversation) -> absl::Status {
      DSV4_ASSIGN_OR_RETURN(Messages made, MessagesFromText(messages, length));
      return conversation.Replace(first, count, std::move(made));
    });
  });
}

dsv4_status dsv4_session_set_chat_options(dsv4_session* session, const dsv4_chat_options* options,
                                          dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&] {
    return WithConversation(session, [&](dsv4::Conversation& conversation) -> absl::Status {
      DSV4_ASSIGN_OR_RETURN(const dsv4::ChatOptions made,
                            OptionsFrom(options, conversation.model_encoder()));
      return conversation.SetOptions(made);
    });
  });
}

dsv4_status dsv4_session_get_messages_json(const dsv4_session* session, size_t first, size_t count,
                                           char* json, size_t capacity, size_t* needed,
                                           dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&] {
    return WithReadConversation(session, [&](const dsv4::Conversation& c) -> absl::Status {
      DSV4_RETURN_IF_ERROR(CheckArrayOut(json, capacity, needed, "json"));
      const absl::Span<const dsv4::ChatMessage> messages = c.messages();
      if (first > messages.size()) {
        return dsv4::InvalidValue("first", " is ", first, "; the conversation has ",
                                  messages.size(), " messages");
      }
      std::vector<dsv4::JsonValue> list;
      for (const dsv4::ChatMessage& message : messages.subspan(first, count))
        list.push_back(dsv4::MessageToJson(message));
      CopyJsonOut(dsv4::JsonValue::FromArray(std::move(list)), json, capacity, needed);
      return absl::OkStatus();
    });
  });
}

dsv4_status dsv4_session_get_reply_json(const dsv4_session* session, char* json, size_t capacity,
                                        size_t* needed, dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&] {
    return WithReadConversation(session, [&](const dsv4::Conversation& c) -> absl::Status {
      DSV4_RETURN_IF_ERROR(CheckArrayOut(json, capacity, needed, "json"));
      const dsv4::ChatMessage* reply = c.reply();
      if (reply == nullptr) return dsv4::NotFound("the conversation has no reply yet");
      CopyJsonOut(dsv4::AssistantToJson(*reply), json, capacity, needed);
      return absl::OkStatus();
    });
  });
}
