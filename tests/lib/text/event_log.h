// SPDX-License-Identifier: Apache-2.0
// The events of a streamed completion, joined: adjacent pieces of one text become one, so that logs
// of the same completion in other pieces are equal.
#pragma once

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "lib/base/utf8.h"
#include "lib/text/streaming_parser.h"

namespace dsv4::test {

struct LoggedEvent {
  ParserEvent::Kind kind;
  int32_t call;
  std::string text;
  std::string id;
  bool repaired;
  std::string reason;
  bool incomplete;
  bool stopped;

  bool operator==(const LoggedEvent&) const = default;
};

inline std::ostream& operator<<(std::ostream& out, const LoggedEvent& event) {
  return out << "\n"
             << static_cast<int>(event.kind) << " call " << event.call << " '" << event.text << "' "
             << event.id << (event.repaired ? " repaired" : "") << " " << event.reason
             << (event.incomplete ? " incomplete" : "") << (event.stopped ? " stopped" : "");
}

class EventLog {
 public:
  void Add(const ParserEvent& event) {
    whole_characters_ &= ValidUtf8Prefix(event.text) == event.text.size();
    using Kind = ParserEvent::Kind;
    const bool joins = event.kind == Kind::kReasoning || event.kind == Kind::kText ||
                       event.kind == Kind::kToolCallArguments;
    if (joins && !events_.empty() && events_.back().kind == event.kind &&
        events_.back().call == event.call && events_.back().repaired == event.repaired) {
      events_.back().text.append(event.text.data(), event.text.size());
    } else {
      events_.push_back({event.kind, event.call, std::string(event.text), std::string(event.id),
                         event.repaired, std::string(event.reason), event.incomplete,
                         event.stopped});
    }
  }

  const std::vector<LoggedEvent>& events() const { return events_; }

  // Whether every piece of text, before joining, was UTF-8 of whole characters.
  bool whole_characters() const { return whole_characters_; }

  // All texts of the events of `kind`, or of those of one call.
  std::string Joined(ParserEvent::Kind kind, int32_t call = -1) const {
    std::string joined;
    for (const LoggedEvent& event : events_) {
      if (event.kind == kind && event.call == call) joined += event.text;
    }
    return joined;
  }

  int Count(ParserEvent::Kind kind) const {
    return static_cast<int>(std::count_if(events_.begin(), events_.end(),
                                          [&](const auto& event) { return event.kind == kind; }));
  }

 private:
  std::vector<LoggedEvent> events_;
  bool whole_characters_ = true;
};

// The log of `completion`, fed in pieces that end at the places `cuts` (ascending) and at its end.
inline EventLog Streamed(absl::string_view completion, ThinkingMode mode,
                         const std::vector<size_t>& cuts = {}) {
  StreamingParser parser({.mode = mode});
  EventLog log;
  const auto add = [&](const ParserEvent& event) { log.Add(event); };
  size_t done = 0;
  for (const size_t cut : cuts) {
    parser.Feed(completion.substr(done, cut - done), add);
    done = cut;
  }
  parser.Feed(completion.substr(done), add);
  parser.End(add);
  return log;
}

}  // namespace dsv4::test
