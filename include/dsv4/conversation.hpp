// SPDX-License-Identifier: Apache-2.0
//
// A conversation: a session on messages, which delivers the assistant's turns as events.
//
//   dsv4::Conversation chat(engine);
//   std::vector<dsv4::Message> messages = {{DSV4_ROLE_USER, "What is the capital of France?"}};
//   chat.Sync(messages);
//   for (const dsv4::Event& event : chat.events())
//     if (event.type == DSV4_PARSER_TEXT) std::cout << event.text;
//   messages.push_back(chat.reply());
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
class Conversation;

namespace detail {

inline std::vector<StepOutcome> StepMixed(const Engine& engine,
                                          Span<Conversation* const> conversations,
                                          std::vector<Session*> sessions);

}  // namespace detail

// Sync ends a turn that is being generated and drops its undelivered events. Threads and errors:
// <dsv4/conversation.h>.
class Conversation {
 public:
  // Opens a session for a conversation.
  explicit Conversation(const Engine& engine, const SessionOptions& options = {})
      : session_(engine, options) {}

  // Opens a copy of the conversation, including its undelivered events.
  Conversation Fork() {
    Conversation fork;
    fork.session_ = session_.Fork();
    fork.events_.assign(events_.begin() + static_cast<std::ptrdiff_t>(taken_), events_.end());
    fork.finish_ = finish_;
    fork.ended_ = ended_;
    fork.reply_ = reply_;
    fork.complete_calls_ = complete_calls_;
    return fork;
  }

  // Sets the messages of the conversation, all of them. The session reuses the KV rows of
  // everything before the first change.
  SyncResult Sync(Span<const Message> messages, const ChatOptions& options = {}) {
    const detail::MessageViews views(messages);
    return SyncTo(dsv4_session_sync_messages, views.data(), views.size(), options);
  }
  // Sets the messages to a JSON array in the form of OpenAI's chat API.
  SyncResult SyncJson(std::string_view json, const ChatOptions& options = {}) {
    return SyncTo(dsv4_session_sync_json, json.data(), json.size(), options);
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
    const std::size_t known = events_.size();
    detail::Call(dsv4_session_step, session_.get(), &detail::EventSink::Add,
                 static_cast<void*>(&sink), &result);
    finish_ = result.finish;
    Record(known);
    if (sink.thrown) std::rethrow_exception(sink.thrown);
    return detail::TakeStep(result);
  }

  // Ends the turn early. Poll() returns held-back text, then END.
  void EndTurn() {
    detail::EventSink sink{&events_};
    const std::size_t known = events_.size();
    detail::CallBack(sink.thrown, dsv4_session_end_turn, session_.get(), &detail::EventSink::Add,
                     static_cast<void*>(&sink));
    Record(known);
    ended_ = true;
  }

  // How the turn ended. DSV4_FINISH_NONE while it continues.
  dsv4_finish finish() const noexcept { return finish_; }

  // The assistant's message since the last sync so far, for the next one. A tool call is included
  // once it is complete.
  Message reply() const {
    Message message = reply_;
    message.tool_calls.resize(complete_calls_);
    return message;
  }

  // The same as a JSON object.
  std::string reply_json() const {
    return detail::ReadAll<std::string>(
        256, [&](char* json, std::size_t capacity, std::size_t* needed) {
          detail::Call(dsv4_session_get_reply_json, session_.get(), json, capacity, needed);
        });
  }

  // The underlying session, for prefill, cancel, statistics and sampling. Do not use Sync, Rewind
  // and Step on it: they change tokens without their messages.
  Session& session() noexcept { return session_; }
  // The underlying session, read-only.
  const Session& session() const noexcept { return session_; }

 private:
  friend std::vector<StepOutcome> detail::StepMixed(const Engine& engine,
                                                    Span<Conversation* const> conversations,
                                                    std::vector<Session*> sessions);

  Conversation() noexcept = default;

  void DropEvents() noexcept {
    events_.clear();
    taken_ = 0;
  }

  template <class Function, class T>
  SyncResult SyncTo(Function function, const T* messages, std::size_t count,
                    const ChatOptions& options) {
    const detail::ChatOptionsView how(options);
    SyncResult result = DSV4_SYNC_RESULT_INIT;
    DropEvents();
    detail::Call(function, session_.get(), messages, count, how.get(), &result);
    finish_ = DSV4_FINISH_NONE;
    ended_ = false;
    reply_ = {DSV4_ROLE_ASSISTANT};
    complete_calls_ = 0;
    return result;
  }

  // Adds the events from number `first` on to the reply.
  void Record(std::size_t first) {
    for (std::size_t i = first; i < events_.size(); ++i) {
      const Event& event = events_[i];
      if (event.type == DSV4_PARSER_REASONING) reply_.reasoning += event.text;
      if (event.type == DSV4_PARSER_TEXT) reply_.content += event.text;
      if (event.type == DSV4_PARSER_TOOL_CALL_START) {
        reply_.tool_calls.resize(complete_calls_);
        reply_.tool_calls.push_back({event.id, event.text, {}});
      }
      if (event.type == DSV4_PARSER_TOOL_CALL_ARGUMENTS)
        reply_.tool_calls.back().arguments += event.text;
      if (event.type == DSV4_PARSER_TOOL_CALL_END) ++complete_calls_;
    }
  }

  Session session_;
  std::vector<Event> events_;
  std::size_t taken_ = 0;  // of events_
  dsv4_finish finish_ = DSV4_FINISH_NONE;
  bool ended_ = false;  // by EndTurn()
  Message reply_ = {DSV4_ROLE_ASSISTANT};
  std::size_t complete_calls_ = 0;  // of reply_; another one may be incomplete
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

namespace detail {

// Steps conversations[i], or sessions[i] where that is NULL, in one pass.
inline std::vector<StepOutcome> StepMixed(const Engine& engine,
                                          Span<Conversation* const> conversations,
                                          std::vector<Session*> sessions) {
  const std::size_t count = conversations.size();
  std::vector<EventSink> sinks(count);
  std::vector<void*> users(count);
  std::vector<std::size_t> known(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (conversations[i] == nullptr) continue;
    sessions[i] = &conversations[i]->session_;
    sinks[i].events = &conversations[i]->events_;
    users[i] = &sinks[i];
    known[i] = sinks[i].events->size();
  }
  std::vector<StepOutcome> outcomes = StepSessions(engine, sessions, &EventSink::Add, users.data());
  for (std::size_t i = 0; i < count; ++i) {
    if (conversations[i] == nullptr) continue;
    if (!outcomes[i].failure) conversations[i]->finish_ = outcomes[i].result.finish;
    conversations[i]->Record(known[i]);
    if (sinks[i].thrown) outcomes[i].failure = sinks[i].thrown;
  }
  return outcomes;
}

}  // namespace detail

// Steps distinct conversations on `engine` in one pass, as dsv4_engine_step does. Poll() of each
// conversation returns its events. The token is -1 while a prompt is pending.
inline std::vector<StepOutcome> StepConversations(const Engine& engine,
                                                  Span<Conversation* const> conversations) {
  return detail::StepMixed(engine, conversations,
                           std::vector<Session*>(conversations.size(), nullptr));
}

}  // namespace cpp
}  // namespace dsv4

#endif  // DSV4_CONVERSATION_HPP_
