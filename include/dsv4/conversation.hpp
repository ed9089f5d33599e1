// SPDX-License-Identifier: Apache-2.0
//
// A conversation: a session that keeps its messages and delivers the assistant's turns as events.
//
//   dsv4::Conversation chat(engine);
//   chat.Append({DSV4_ROLE_USER, "What is the capital of France?"});
//   for (const dsv4::Event& event : chat.events())
//     if (event.type == DSV4_PARSER_TEXT) std::cout << event.text;
#ifndef DSV4_CONVERSATION_HPP_
#define DSV4_CONVERSATION_HPP_

#include <dsv4/conversation.h>
#include <dsv4/parser.hpp>
#include <dsv4/session.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dsv4 {
inline namespace cpp {

class EventRange;

// Functions that change the messages first end a turn that is being generated and drop its
// undelivered events. Threads and errors: <dsv4/conversation.h>.
class Conversation {
 public:
  // Opens a conversation with `messages`, which may be empty.
  explicit Conversation(const Engine& engine, Span<const Message> messages = {},
                        const ChatOptions& options = {}, const SessionOptions& session = {}) {
    const detail::MessageViews views(messages);
    const detail::ChatOptionsView how(options);
    session_.Open(session, [&](const dsv4_session_options* view, dsv4_session** opened) {
      detail::Call(dsv4_session_open_messages, engine.get(), view, views.data(), views.size(),
                   how.get(), opened);
    });
  }

  // Opens a conversation with a JSON array of messages in the form of OpenAI's chat API.
  static Conversation FromJson(const Engine& engine, std::string_view json,
                               const ChatOptions& options = {},
                               const SessionOptions& session = {}) {
    const detail::ChatOptionsView how(options);
    Conversation result;
    result.session_.Open(session, [&](const dsv4_session_options* view, dsv4_session** opened) {
      detail::Call(dsv4_session_open_json, engine.get(), view, json.data(), json.size(), how.get(),
                   opened);
    });
    return result;
  }

  // Opens a copy of the conversation, including its undelivered events.
  Conversation Fork() {
    Conversation fork;
    fork.session_ = session_.Fork();
    fork.events_.assign(events_.begin() + static_cast<std::ptrdiff_t>(taken_), events_.end());
    fork.finish_ = finish_;
    fork.ended_ = ended_;
    return fork;
  }

  // Appends a message, for example the user's next one.
  void Append(const Message& message) { Append(Span<const Message>(&message, 1)); }
  // Appends several messages.
  void Append(Span<const Message> messages) {
    const detail::MessageViews views(messages);
    Change(dsv4_session_append_messages, views.data(), views.size());
  }
  // Appends a JSON array of messages.
  void AppendJson(std::string_view json) {
    Change(dsv4_session_append_json, json.data(), json.size());
  }

  // Keeps only the first `count` messages.
  void Truncate(std::size_t count) { Change(dsv4_session_truncate_messages, count); }

  // Replaces `count` messages from number `first` on by `messages`. Either may be empty.
  void Replace(std::size_t first, std::size_t count, Span<const Message> messages) {
    const detail::MessageViews views(messages);
    Change(dsv4_session_replace_messages, first, count, views.data(), views.size());
  }
  // Replaces messages by a JSON array of messages.
  void ReplaceJson(std::size_t first, std::size_t count, std::string_view json) {
    Change(dsv4_session_replace_json, first, count, json.data(), json.size());
  }

  // Changes the options and renders the whole conversation again.
  void SetChatOptions(const ChatOptions& options) {
    const detail::ChatOptionsView how(options);
    Change(dsv4_session_set_chat_options, how.get());
  }

  // The events of the assistant's turn, for a range-based `for`. Computes each event when it is
  // needed. If a loop ends early, another one continues after it.
  inline EventRange events();

  // Computes tokens until the next event. Returns nothing when the turn has ended.
  std::optional<Event> Next() {
    for (;;) {
      if (std::optional<Event> event = Poll()) return event;
      if (finish_ != DSV4_FINISH_NONE || ended_) return std::nullopt;
      Step();
    }
  }

  // The next event that is already computed, if any.
  std::optional<Event> Poll() {
    if (taken_ >= events_.size()) return std::nullopt;
    std::optional<Event> event(std::move(events_[taken_++]));
    if (taken_ == events_.size()) DropEvents();
    return event;
  }

  // Computes one token of the turn. Poll() returns its events. The result's text is the token's
  // text, including markup.
  StepResult Step() {
    detail::EventSink sink{&events_};
    dsv4_step_result result = DSV4_STEP_RESULT_INIT;
    session_.CallMasked(&StepEvents, &sink, &result);
    finish_ = result.finish;
    if (sink.thrown) std::rethrow_exception(sink.thrown);
    return detail::TakeStep(result);
  }

  // Ends the turn early. Poll() returns held-back text, then END.
  void EndTurn() {
    detail::EventSink sink{&events_};
    detail::CallBack(sink.thrown, dsv4_session_end_turn, session_.get(), &detail::EventSink::Add,
                     static_cast<void*>(&sink));
    ended_ = true;
  }

  // How the turn ended. DSV4_FINISH_NONE while it continues.
  dsv4_finish finish() const noexcept { return finish_; }

  // The number of messages, including the assistant's.
  std::size_t message_count() const {
    std::size_t count = 0;
    detail::Call(dsv4_session_get_message_count, session_.get(), &count);
    return count;
  }

  // Up to `count` messages from number `first` on, as a JSON array.
  std::string messages_json(std::size_t first = 0, std::size_t count = SIZE_MAX) const {
    return detail::ReadAll<std::string>(
        1024, [&](char* json, std::size_t capacity, std::size_t* needed) {
          detail::Call(dsv4_session_get_messages_json, session_.get(), first, count, json, capacity,
                       needed);
        });
  }

  // The assistant's last message, complete or not, as a JSON object.
  std::string reply_json() const {
    return detail::ReadAll<std::string>(
        256, [&](char* json, std::size_t capacity, std::size_t* needed) {
          detail::Call(dsv4_session_get_reply_json, session_.get(), json, capacity, needed);
        });
  }

  // The underlying session, for prefill, cancel, statistics and sampling. Do not use Sync, Rewind,
  // Step and StepAll on it: they change tokens without their messages.
  Session& session() noexcept { return session_; }
  // The underlying session, read-only.
  const Session& session() const noexcept { return session_; }

 private:
  friend std::vector<StepOutcome> StepConversations(const Engine& engine,
                                                    Span<Conversation* const> conversations);

  Conversation() noexcept = default;

  static dsv4_status StepEvents(dsv4_session* session, detail::EventSink* sink,
                                dsv4_step_result* result, dsv4_error** error) noexcept {
    return dsv4_session_step_events(session, &detail::EventSink::Add, sink, result, error);
  }

  void DropEvents() noexcept {
    events_.clear();
    taken_ = 0;
  }

  // Makes a call that changes the messages.
  template <class Function, class... Arguments>
  void Change(Function function, Arguments... arguments) {
    DropEvents();
    detail::Call(function, session_.get(), arguments...);
    finish_ = DSV4_FINISH_NONE;
    ended_ = false;
  }

  Session session_;
  std::vector<Event> events_;
  std::size_t taken_ = 0;  // of events_
  dsv4_finish finish_ = DSV4_FINISH_NONE;
  bool ended_ = false;  // by EndTurn()
};

// The remaining events of a conversation's turn.
class EventRange {
 public:
  class iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Event;
    using difference_type = std::ptrdiff_t;
    using pointer = const Event*;
    using reference = const Event&;

    iterator() = default;
    explicit iterator(Conversation* conversation) : conversation_(conversation) { ++*this; }

    const Event& operator*() const noexcept { return *event_; }
    const Event* operator->() const noexcept { return &*event_; }
    iterator& operator++() {
      event_ = conversation_->Next();
      return *this;
    }
    void operator++(int) { ++*this; }
    // Iterators compare equal only at the end.
    friend bool operator==(const iterator& a, const iterator& b) noexcept {
      return !a.event_ && !b.event_;
    }
    friend bool operator!=(const iterator& a, const iterator& b) noexcept { return !(a == b); }

   private:
    Conversation* conversation_ = nullptr;
    std::optional<Event> event_;
  };

  // The conversation must outlive the object.
  explicit EventRange(Conversation* conversation) noexcept : conversation_(conversation) {}
  iterator begin() const { return iterator(conversation_); }
  iterator end() const noexcept { return {}; }

 private:
  Conversation* conversation_;
};

inline EventRange Conversation::events() { return EventRange(this); }

// Steps distinct conversations on `engine` in one pass, as dsv4_engine_step_events does. Poll() of
// each conversation returns its events. The token is -1 while a prompt is pending.
inline std::vector<StepOutcome> StepConversations(const Engine& engine,
                                                  Span<Conversation* const> conversations) {
  const std::size_t count = conversations.size();
  std::vector<Session*> sessions;
  std::vector<detail::EventSink> sinks(count);
  std::vector<void*> users;
  for (std::size_t i = 0; i < count; ++i) {
    Conversation* conversation = conversations[i];
    sessions.push_back(conversation != nullptr ? &conversation->session_ : nullptr);
    if (conversation != nullptr) sinks[i].events = &conversation->events_;
    users.push_back(&sinks[i]);
  }
  std::vector<StepOutcome> outcomes = detail::Pass::Run(
      {sessions.data(), count},
      [&](dsv4_session* const* handles, std::size_t handle_count, auto... arguments) {
        detail::Call(dsv4_engine_step_events, engine.get(), handles, handle_count,
                     &detail::EventSink::Add, users.data(), arguments...);
      });
  for (std::size_t i = 0; i < count; ++i) {
    if (!outcomes[i].failure) conversations[i]->finish_ = outcomes[i].result.finish;
    if (sinks[i].thrown) outcomes[i].failure = sinks[i].thrown;
  }
  return outcomes;
}

}  // namespace cpp
}  // namespace dsv4

#endif  // DSV4_CONVERSATION_HPP_
