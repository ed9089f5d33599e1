// SPDX-License-Identifier: Apache-2.0
// Receives the model's turn while it streams.
#pragma once

#include <dsv4/dsv4.hpp>

namespace chat {

// The end of a turn and its cost.
struct TurnEnd {
  dsv4_finish finish = DSV4_FINISH_NONE;  // none: Ctrl-C
  dsv4::SessionStats stats = DSV4_SESSION_STATS_INIT;
  double first_token_seconds = 0;
  // Of the engine, as dsv4_engine_metrics has them: 0 before it has decoded 256 tokens alone.
  double measured_tokens_per_second = 0, predicted_tokens_per_second = 0;
};

class TurnOutput {
 public:
  virtual ~TurnOutput() = default;
  // Throws a Failure if it cannot be written.
  virtual void Event(const dsv4::Event& event) = 0;
  // Called after the last event.
  virtual void End(const TurnEnd& end) = 0;
};

}  // namespace chat
