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
#include "capi/sync_result.h"
#include "lib/base/status_macros.h"
#include "lib/base/utf8.h"
#include "lib/session/conversation.h"
#include "lib/text/chat_json.h"
#include "lib/text/python_json.h"

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

absl::Status HasMessages(const dsv4_session& handle) {
  if (handle.conversation != nullptr) return absl::OkStatus();
  return InvalidValue("session", " was not synced to messages");
}

// Syncs the session to what `messages()` returns.
template <class MakeMessages>
dsv4_status SyncTo(dsv4_session* handle, const dsv4_chat_options* options, dsv4_sync_result* result,
                   dsv4_error** error, MakeMessages&& messages) {
  return Guard(error, [&] {
    return WithExclusive(handle, [&](Session& session) -> absl::Status {
      if (result != nullptr) DSV4_RETURN_IF_ERROR(StructSize(result, "result").status());
      std::unique_ptr<Conversation> made;
      if (handle->conversation == nullptr) {
        DSV4_ASSIGN_OR_RETURN(made, Conversation::Create(&session));
      }
      Conversation& conversation = made != nullptr ? *made : *handle->conversation;
      DSV4_ASSIGN_OR_RETURN(const ChatOptions chat_options,
                            OptionsFrom(options, conversation.model_encoder()));
      DSV4_ASSIGN_OR_RETURN(Messages list, messages());
      DSV4_ASSIGN_OR_RETURN(const SyncResult synced,
                            conversation.Sync(std::move(list), chat_options));
      if (made != nullptr) handle->conversation = std::move(made);
      if (result != nullptr) CopyOut(SyncResultTo(synced), result);
      return absl::OkStatus();
    });
  });
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

dsv4_status dsv4_session_sync_messages(dsv4_session* session, const dsv4_message* const* messages,
                                       size_t count, const dsv4_chat_options* options,
                                       dsv4_sync_result* result, dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return SyncTo(session, options, result, error,
                [&] { return MessagesFrom(messages, count, "messages"); });
}

dsv4_status dsv4_session_sync_json(dsv4_session* session, const char* messages, size_t length,
                                   const dsv4_chat_options* options, dsv4_sync_result* result,
                                   dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return SyncTo(session, options, result, error,
                [&] { return MessagesFromText(messages, length); });
}

dsv4_status dsv4_session_step(dsv4_session* session, dsv4_parser_event_fn callback, void* user,
                              dsv4_step_result* result, dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  // Calls `step`, and copies its result.
  const auto deliver = [&](auto step) -> absl::Status {
    if (result != nullptr) DSV4_RETURN_IF_ERROR(StructSize(result, "result").status());
    const absl::StatusOr<dsv4::StepResult> taken = step();
    return result != nullptr ? CopyStepOut(taken, result) : taken.status();
  };
  return Guard(error, [&] {
    if (callback == nullptr) {
      return WithExclusive(
          session, [&](dsv4::Session& tokens) { return deliver([&] { return tokens.Step(); }); });
    }
    return WithConversation(session, [&](dsv4::Conversation& conversation) {
      return deliver([&] {
        return conversation.Step([&](const dsv4::ParserEvent& event) {
          const dsv4_parser_event out = EventOf(event);
          callback(user, &out);
        });
      });
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

dsv4_status dsv4_session_get_reply_json(const dsv4_session* session, char* json, size_t capacity,
                                        size_t* needed, dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&] {
    return WithReadConversation(session, [&](const dsv4::Conversation& c) -> absl::Status {
      DSV4_RETURN_IF_ERROR(CheckArrayOut(json, capacity, needed, "json"));
      const dsv4::ChatMessage* reply = c.reply();
      if (reply == nullptr)
        return dsv4::NotFound("the session has generated no reply since its last sync");
      CopyJsonOut(dsv4::AssistantToJson(*reply), json, capacity, needed);
      return absl::OkStatus();
    });
  });
}
