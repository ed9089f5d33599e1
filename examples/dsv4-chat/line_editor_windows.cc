// SPDX-License-Identifier: Apache-2.0
// The console edits lines and recalls those of this run itself. None are kept for later runs.
#include "examples/dsv4-chat/line_editor.h"

namespace chat {

struct LineEditor::Editor {};

LineEditor::LineEditor(bool) {}

LineEditor::~LineEditor() = default;

LineEditor::Result LineEditor::Read(const std::string& prompt, std::string* line) {
  return ReadPlain(prompt, line);
}

}  // namespace chat
