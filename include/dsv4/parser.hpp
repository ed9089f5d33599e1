// SPDX-License-Identifier: Apache-2.0
//
// A streaming parser of completions.
#ifndef DSV4_PARSER_HPP_
#define DSV4_PARSER_HPP_

#include <dsv4/parser.h>
#include <dsv4/chat.hpp>

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

namespace dsv4 {
inline namespace cpp {

// One event, with the fields of dsv4_parser_event.
struct Event {
  dsv4_parser_event_type type = 0;
  int32_t call = -1;
  bool repaired = false, incomplete = false, stopped = false;
  std::string text = {}, id = {}, reason = {};
};

namespace detail {

// Collects events. It is the `user` of the C callback.
struct EventSink {
  std::vector<Event>* events;
  std::exception_ptr thrown = nullptr;

  static void Add(void* user, const dsv4_parser_event* event) noexcept {
    auto* self = static_cast<EventSink*>(user);
    try {
      self->events->push_back({event->type, event->call, event->repaired != 0,
                               event->incomplete != 0, event->stopped != 0,
                               std::string(event->text, event->text_length),
                               std::string(event->id, event->id_length),
                               std::string(event->reason, event->reason_length)});
    } catch (...) {
      self->thrown = std::current_exception();
    }
  }
};

}  // namespace detail

// Parses completions, one after another. Needs no engine.
class Parser {
 public:
  // `thinking`: the mode that the prompt was rendered with. The id of a tool call is `id_prefix`
  // and its number.
  explicit Parser(dsv4_thinking_mode thinking = DSV4_THINKING_OFF,
                  const std::string& id_prefix = "call_") {
    detail::CheckAbi();
    dsv4_parser_options options = DSV4_PARSER_OPTIONS_INIT;
    options.thinking = thinking;
    options.id_prefix = id_prefix.c_str();
    dsv4_parser* parser = nullptr;
    detail::Call(dsv4_parser_open, &options, &parser);
    handle_.reset(parser);
  }

  // Returns the events that the next bytes of the completion complete. Bytes may be split anywhere.
  std::vector<Event> Feed(std::string_view bytes) {
    return Collect(dsv4_parser_feed, bytes.data(), bytes.size());
  }

  // Ends the completion: returns held-back text, then END. The parser is then ready for another
  // one.
  std::vector<Event> End() { return Collect(dsv4_parser_end); }

  // The C handle.
  dsv4_parser* get() const noexcept { return handle_.get(); }

 private:
  template <class Function, class... Arguments>
  std::vector<Event> Collect(Function function, Arguments... arguments) {
    std::vector<Event> events;
    detail::EventSink sink{&events};
    detail::CallBack(sink.thrown, function, handle_.get(), arguments..., &detail::EventSink::Add,
                     static_cast<void*>(&sink));
    return events;
  }

  detail::Handle<dsv4_parser, dsv4_parser_close> handle_;
};

}  // namespace cpp
}  // namespace dsv4

#endif  // DSV4_PARSER_HPP_
