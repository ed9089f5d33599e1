// SPDX-License-Identifier: Apache-2.0
// Where each kind of text goes: the model's answer to standard output, everything else to standard
// error; reasoning only when a person looks at it there.
#pragma once

#include <string_view>

#include "examples/dsv4-chat/options.h"

namespace chat {

class Screen {
 public:
  explicit Screen(ColorMode color);

  bool shows_progress() const { return err_is_terminal_; }

  void Reasoning(std::string_view text);
  void Answer(std::string_view text);
  // Ends the line that the answer or the reasoning is on.
  void EndAnswer();

  // A line about the program rather than from the model; without a line break.
  void Notice(std::string_view text);

 private:
  void EndReasoning();

  bool out_is_terminal_, err_is_terminal_, dim_;
  bool in_reasoning_ = false, in_answer_line_ = false;
};

}  // namespace chat
