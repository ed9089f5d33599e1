// SPDX-License-Identifier: Apache-2.0
// Output for people: the model's answer goes to standard output, everything else to standard error,
// reasoning only if standard error is a terminal.
#pragma once

#include <string>
#include <string_view>

#include "examples/dsv4-chat/options.h"
#include "examples/dsv4-chat/turn_output.h"

namespace chat {

// A model may write any byte: on a terminal, control characters other than line break and tab are
// shown as a question mark, because they could move the cursor or change the terminal's state.
std::string Visible(std::string_view text);

class Screen : public TurnOutput {
 public:
  explicit Screen(const Options& options);

  bool shows_progress() const { return err_is_terminal_; }

  void Event(const dsv4::Event& event) override;
  void End(const TurnEnd& end) override;

  // A line about the program rather than from the model; without a line break.
  void Notice(std::string_view text);

 private:
  enum class Part { kNone, kReasoning, kAnswer, kCall };

  // Ends the part that is being written, unless it is `part`.
  void Enter(Part part);
  void Reasoning(std::string_view text);
  void Answer(std::string_view text);
  void Call(std::string_view text);

  bool out_is_terminal_, err_is_terminal_, dim_, shows_reasoning_;
  Part part_ = Part::kNone;
  std::string malformed_;  // what was wrong last in this turn
  bool in_line_ = false;   // the answer's last line has no line break yet
};

}  // namespace chat
