// SPDX-License-Identifier: Apache-2.0
// Where the model's turn goes while it streams.
#pragma once

#include <dsv4/dsv4.hpp>

namespace chat {

// How a turn ended, and what it cost.
struct TurnEnd {
  dsv4_finish finish = DSV4_FINISH_NONE;  // none: Ctrl-C
  dsv4::SessionStats stats = DSV4_SESSION_STATS_INIT;
  double first_token_seconds = 0;
};

class TurnOutput {
 public:
  virtual ~TurnOutput() = default;
  // Throws a Failure when it cannot be written.
  virtual void Event(const dsv4::Event& event) = 0;
  // After the last event.
  virtual void End(const TurnEnd& end) = 0;
};

}  // namespace chat
