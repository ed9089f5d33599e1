// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-chat/screen.h"

#include <cstdlib>
#include <string>

#include "examples/console/terminal.h"

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

}  // namespace

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

Screen::Screen(const Options& options)
    : out_is_terminal_(IsTerminal(kStdout)),
      err_is_terminal_(IsTerminal(kStderr)),
      dim_(UsesColor(options.color)),
      shows_reasoning_(err_is_terminal_ && !options.hide_thinking) {}

void Screen::Event(const dsv4::Event& event) {
  const std::string& text = event.text;
  switch (event.type) {
    case DSV4_PARSER_REASONING:
      return Reasoning(text);
    case DSV4_PARSER_TEXT:
      return Answer(text);
    case DSV4_PARSER_TOOL_CALL_START:
      Enter(Part::kNone);
      return Call(event.id + ": " + text + " ");
    case DSV4_PARSER_TOOL_CALL_ARGUMENTS:
      return Call(text);
    case DSV4_PARSER_TOOL_CALL_END:
      return Enter(Part::kNone);
    case DSV4_PARSER_MALFORMED:
      malformed_ = event.reason;
      return;
    case DSV4_PARSER_END:
      Enter(Part::kNone);
      if (event.incomplete) Notice("(a call of a tool is cut short)");
      // Not in the midst of the answer, whose text on standard output is the model's alone.
      if (!malformed_.empty()) Notice("(malformed: " + malformed_ + ")");
      malformed_.clear();
      return;
    default:
      return;  // of a newer library
  }
}

void Screen::End(const TurnEnd& end) {
  if (end.finish == DSV4_FINISH_CONTEXT_FULL)
    Notice("the context is full: the answer may be cut short");
}

void Screen::Enter(Part part) {
  if (part == part_) return;
  if (part_ == Part::kReasoning) WriteErr(dim_ ? std::string(kPlain) + "\n\n" : "\n\n");
  if (part_ == Part::kAnswer && in_line_) WriteOut("\n");
  if (part_ == Part::kCall) WriteErr("\n");
  part_ = part;
  in_line_ = false;
}

void Screen::Reasoning(std::string_view text) {
  if (!shows_reasoning_ || text.empty()) return;
  if (part_ != Part::kReasoning) {
    Enter(Part::kReasoning);
    WriteErr(dim_ ? kDim : "[reasoning] ");
  }
  WriteErr(Visible(text));
}

void Screen::Answer(std::string_view text) {
  if (text.empty()) return;
  Enter(Part::kAnswer);
  out_is_terminal_ ? WriteOut(Visible(text)) : WriteOut(text);
  in_line_ = text.back() != '\n';
}

void Screen::Call(std::string_view text) {
  Enter(Part::kCall);
  WriteErr(err_is_terminal_ ? Visible(text) : std::string(text));
}

void Screen::Notice(std::string_view text) {
  std::string line(text);
  if (dim_) line = std::string(kDim) + line + std::string(kPlain);
  WriteErr(line + "\n");
}

}  // namespace chat
