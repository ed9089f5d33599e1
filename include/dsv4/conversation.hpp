// SPDX-License-Identifier: Apache-2.0
//
// A conversation: a session that knows its messages and delivers the assistant's turns as events.
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

class EventRange;

// What changes the messages ends a turn that is being generated, and drops the events of it that
// were not taken. Threads and errors: <dsv4/conversation.h>.
class Conversation {
 public:
  // Begins on `messages`, perhaps none.
  explicit Conversation(const Engine& engine, Span<const Message> messages = {},
                        const ChatOptions& options = {}, const SessionOptions& session = {}) {
    const detail::MessageViews views(messages);
    const detail::ChatOptionsView how(options);
    session_.Open(session, [&](const dsv4_session_options* view, dsv4_session** opened) {
      detail::Call(dsv4_session_open_messages, engine.get(), view, views.data(), views.size(),
                   how.get(), opened);
    });
  }

  // On messages as a JSON array in the form of OpenAI's chat API.
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

  // Another conversation that goes on like this one, with the events not taken yet.
  Conversation Fork() {
    Conversation fork;
    fork.session_ = session_.Fork();
    fork.events_.assign(events_.begin() + static_cast<std::ptrdiff_t>(taken_), events_.end());
    fork.finish_ = finish_;
    fork.ended_ = ended_;
    return fork;
  }

  // What comes after the assistant's last turn.
  void Append(const Message& message) { Append(Span<const Message>(&message, 1)); }
  // The same of several messages.
  void Append(Span<const Message> messages) {
    const detail::MessageViews views(messages);
    Change(dsv4_session_append_messages, views.data(), views.size());
  }
  // The same of a JSON array.
  void AppendJson(std::string_view json) {
    Change(dsv4_session_append_json, json.data(), json.size());
  }

  // Keeps the first `count` messages alone.
  void Truncate(std::size_t count) { Change(dsv4_session_truncate_messages, count); }

  // Puts `messages` in the place of the `count` messages from `first` on; either may be none.
  void Replace(std::size_t first, std::size_t count, Span<const Message> messages) {
    const detail::MessageViews views(messages);
    Change(dsv4_session_replace_messages, first, count, views.data(), views.size());
  }
  // The same of a JSON array.
  void ReplaceJson(std::size_t first, std::size_t count, std::string_view json) {
    Change(dsv4_session_replace_json, first, count, json.data(), json.size());
  }

  // Renders the conversation by other options from here on.
  void SetChatOptions(const ChatOptions& options) {
    const detail::ChatOptionsView how(options);
    Change(dsv4_session_set_chat_options, how.get());
  }

  // The events of the assistant's turn, of which each is computed when it is asked for: for a
  // range-based `for`. May be left and begun again: it goes on where it was.
  inline EventRange events();

  // The next event, for which as many tokens are computed as it takes; none when the turn has
  // ended.
  std::optional<Event> Next() {
    for (;;) {
      if (std::optional<Event> event = Poll()) return event;
      if (finish_ != DSV4_FINISH_NONE || ended_) return std::nullopt;
      Step();
    }
  }

  // The next event of what is computed already.
  std::optional<Event> Poll() {
    if (taken_ >= events_.size()) return std::nullopt;
    std::optional<Event> event(std::move(events_[taken_++]));
    if (taken_ == events_.size()) DropEvents();
    return event;
  }

  // One token of the turn; what it decides is for Poll(). The text is the token's, markup and all.
  StepResult Step() {
    detail::EventSink sink{&events_};
    dsv4_step_result result = DSV4_STEP_RESULT_INIT;
    session_.CallMasked(&StepEvents, &sink, &result);
    finish_ = result.finish;
    if (sink.thrown) std::rethrow_exception(sink.thrown);
    return detail::TakeStep(result);
  }

  // Ends the turn where it is; what was held back, and END, are for Poll().
  void EndTurn() {
    detail::EventSink sink{&events_};
    detail::CallBack(sink.thrown, dsv4_session_end_turn, session_.get(), &detail::EventSink::Add,
                     static_cast<void*>(&sink));
    ended_ = true;
  }

  // How the turn ended; DSV4_FINISH_NONE while it goes on.
  dsv4_finish finish() const noexcept { return finish_; }

  // How many messages there are, the assistant's among them.
  std::size_t message_count() const {
    std::size_t count = 0;
    detail::Call(dsv4_session_message_count, session_.get(), &count);
    return count;
  }

  // Up to `count` messages from `first` on, as a JSON array.
  std::string messages_json(std::size_t first = 0, std::size_t count = SIZE_MAX) const {
    return detail::ReadAll<std::string>(1024,
                                        [&](char* json, std::size_t capacity, std::size_t* needed) {
                                          detail::Call(dsv4_session_messages_json, session_.get(),
                                                       first, count, json, capacity, needed);
                                        });
  }

  // The assistant's last message as far as it goes, as a JSON object.
  std::string reply_json() const {
    return detail::ReadAll<std::string>(
        256, [&](char* json, std::size_t capacity, std::size_t* needed) {
          detail::Call(dsv4_session_reply_json, session_.get(), json, capacity, needed);
        });
  }

  // For prefill, cancel, statistics, sampling and the like. Its Sync, Rewind, Step and StepAll
  // would pull the timeline away from the messages.
  Session& session() noexcept { return session_; }
  // The same to read.
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

  // A call that changes the messages.
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

// The rest of a conversation's turn.
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
    // Equal at the end alone.
    friend bool operator==(const iterator& a, const iterator& b) noexcept {
      return !a.event_ && !b.event_;
    }
    friend bool operator!=(const iterator& a, const iterator& b) noexcept { return !(a == b); }

   private:
    Conversation* conversation_ = nullptr;
    std::optional<Event> event_;
  };

  // Of a conversation that outlives it.
  explicit EventRange(Conversation* conversation) noexcept : conversation_(conversation) {}
  iterator begin() const { return iterator(conversation_); }
  iterator end() const noexcept { return {}; }

 private:
  Conversation* conversation_;
};

inline EventRange Conversation::events() { return EventRange(this); }

// Steps distinct conversations on `engine` in one pass, as dsv4_engine_step_events does: what it
// decides is for Poll() of each. Where a prompt is still pending, the token is -1.
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

}  // namespace dsv4

#endif  // DSV4_CONVERSATION_HPP_
