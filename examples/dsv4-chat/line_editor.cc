// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-chat/line_editor.h"

#include "examples/console/failure.h"
#include "examples/dsv4-chat/screen.h"

namespace chat {

LineEditor::Result LineEditor::ReadPlain(const std::string& prompt, std::string* line) {
  WriteErr(Visible(prompt));
  line->clear();
  for (;;) {
    const int byte = input_.ReadByte();
    if (Interrupted()) return Result::kInterrupted;
    if (byte == Input::kSignal) continue;
    if (byte == Input::kEnd) return line->empty() ? Result::kEnd : Result::kLine;
    if (byte == '\n') return Result::kLine;
    *line += static_cast<char>(byte);
    if (line->size() > kMaxInputBytes)
      throw Failure{kUsageError, "the line is longer than 256 MiB"};
  }
}

}  // namespace chat
