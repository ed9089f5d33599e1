// SPDX-License-Identifier: Apache-2.0
// Reads lines: with editing and history on a terminal, plain otherwise.
#pragma once

#include <memory>
#include <string>

#include "examples/console/terminal.h"

namespace chat {

class LineEditor {
 public:
  // `keeps_history`: lines of earlier runs can be recalled, and these are kept for later ones. Only
  // where lines are edited: on a terminal that can move its cursor.
  explicit LineEditor(bool keeps_history);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  enum class Result { kLine, kEnd, kInterrupted };
  // `line` without its line break. Throws a Failure.
  Result Read(const std::string& prompt, std::string* line);

 private:
  struct Editor;
  Result ReadPlain(const std::string& prompt, std::string* line);

  Input input_;
  std::unique_ptr<Editor> editor_;  // null: plain
};

}  // namespace chat
