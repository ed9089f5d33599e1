// SPDX-License-Identifier: Apache-2.0
// Where the model's turn goes while it streams.
#pragma once

#include <dsv4/dsv4.h>

#include <string>

namespace chat {

// How a turn ended, and what it cost.
struct TurnEnd {
  dsv4_finish finish = DSV4_FINISH_NONE;  // none: Ctrl-C
  dsv4_session_stats stats = DSV4_SESSION_STATS_INIT;
  double first_token_seconds = 0;
};

class TurnOutput {
 public:
  virtual ~TurnOutput() = default;
  // Throws a Failure when it cannot be written.
  virtual void Event(const dsv4_parser_event& event) = 0;
  // After the last event.
  virtual void End(const TurnEnd& end) = 0;
};

}  // namespace chat
