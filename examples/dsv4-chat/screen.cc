// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-chat/screen.h"

#include <cstdlib>
#include <string>

#include "examples/dsv4-chat/terminal.h"

namespace chat {
namespace {

constexpr std::string_view kDim = "\x1b[2m", kPlain = "\x1b[0m";

bool UsesColor(ColorMode mode) {
  if (mode != ColorMode::kAuto) return mode == ColorMode::kAlways;
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return IsTerminal(kStderr) && (no_color == nullptr || *no_color == '\0') && term != nullptr &&
         std::string_view(term) != "dumb";
}

// A model may write any byte: on a terminal, control characters other than line break and tab are
// shown as a question mark, because they could move the cursor or change the terminal's state.
std::string Visible(std::string_view text) {
  std::string visible;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    const bool c0 = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f;
    const bool c1 = byte == 0xc2 && next >= 0x80 && next < 0xa0;  // U+0080 to U+009F
    visible += c0 || c1 ? '?' : text[i];
    i += c1;
  }
  return visible;
}

}  // namespace

Screen::Screen(ColorMode color)
    : out_is_terminal_(IsTerminal(kStdout)),
      err_is_terminal_(IsTerminal(kStderr)),
      dim_(UsesColor(color)) {}

void Screen::Reasoning(std::string_view text) {
  if (!err_is_terminal_ || text.empty()) return;
  if (!in_reasoning_) WriteErr(dim_ ? kDim : "[reasoning] ");
  in_reasoning_ = true;
  WriteErr(Visible(text));
}

void Screen::EndReasoning() {
  if (!in_reasoning_) return;
  if (dim_) WriteErr(kPlain);
  WriteErr("\n\n");
  in_reasoning_ = false;
}

void Screen::Answer(std::string_view text) {
  if (text.empty()) return;
  EndReasoning();
  out_is_terminal_ ? WriteOut(Visible(text)) : WriteOut(text);
  in_answer_line_ = text.back() != '\n';
}

void Screen::EndAnswer() {
  EndReasoning();
  if (in_answer_line_) WriteOut("\n");
  in_answer_line_ = false;
}

void Screen::Notice(std::string_view text) {
  std::string line(text);
  if (dim_) line = std::string(kDim) + line + std::string(kPlain);
  WriteErr(line + "\n");
}

}  // namespace chat
