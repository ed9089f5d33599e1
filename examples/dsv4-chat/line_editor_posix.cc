// SPDX-License-Identifier: Apache-2.0
// By libedit. What it reads comes from Input, which also notices signals: libedit's own handling of
// them would send Ctrl-C to the whole process group. What it shows goes to standard error.
#include "examples/dsv4-chat/line_editor.h"

#include <fcntl.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>
#include <utility>

#include "examples/console/failure.h"
#include "examples/dsv4-chat/screen.h"

namespace chat {
namespace {

constexpr int kHistoryLines = 1000;

// libedit takes characters for what the locale says they are.
void UseUtf8() {
  setlocale(LC_CTYPE, "");
  if (std::string_view(nl_langinfo(CODESET)) != "UTF-8") setlocale(LC_CTYPE, "C.UTF-8");
}

bool CanEdit() {
  const char* term = std::getenv("TERM");
  return IsTerminal(kStdin) && IsTerminal(kStderr) && term != nullptr && *term != '\0' &&
         std::string_view(term) != "dumb";
}

// As the XDG base directories are defined; "" where there is no home.
std::string HistoryFile() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  std::string folder;
  if (state != nullptr && *state == '/') {
    folder = state;
  } else if (home != nullptr && *home == '/') {
    folder = std::string(home) + "/.local/state";
  } else {
    return {};
  }
  return folder + "/dsv4/chat_history";
}

// Makes the missing folders of `path`. Only their owner can use them.
void MakeFolders(const std::string& path) {
  for (size_t end = path.find('/', 1); end != std::string::npos; end = path.find('/', end + 1))
    mkdir(path.substr(0, end).c_str(), 0700);
}

// What a line break in pasted text is shown as; libedit has lines of one line.
constexpr wchar_t kPastedBreak = L'\u23ce';
constexpr std::string_view kPastedBreakUtf8 = "\u23ce";

// Bytes that follow the first one of a UTF-8 character; -1 for no first byte.
int FollowingBytes(int first) {
  return first < 0x80   ? 0
         : first < 0xc2 ? -1
         : first < 0xe0 ? 1
         : first < 0xf0 ? 2
         : first < 0xf5 ? 3
                        : -1;
}

}  // namespace

struct LineEditor::Editor {
  explicit Editor(Input* read_from, bool keeps_history)
      : input(read_from), file(keeps_history ? HistoryFile() : "") {
    UseUtf8();
    // Of its own, to be buffered.
    out = fdopen(fcntl(kStderr, F_DUPFD_CLOEXEC, kStderr + 1), "w");
    if (out == nullptr) throw Failure{kRunTimeError, "cannot write to the terminal"};
    edit = el_init("dsv4-chat", stdin, out, out);
    history = history_init();
    if (edit == nullptr || history == nullptr)
      throw Failure{kMemoryError, "cannot start the line editor"};
    el_set(edit, EL_CLIENTDATA, this);
    el_set(edit, EL_PROMPT, &Prompt);
    el_set(edit, EL_EDITOR, "emacs");
    el_set(edit, EL_SIGNAL, 0);
    el_set(edit, EL_GETCFN, &ReadCharacter);
    el_set(edit, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    // Keys that common terminals send.
    el_set(edit, EL_BIND, "\\e[3~", "ed-delete-next-char", nullptr);
    el_set(edit, EL_BIND, "\\e[1;5C", "em-next-word", nullptr);
    el_set(edit, EL_BIND, "\\e[1;5D", "ed-prev-word", nullptr);
    HistEvent event;
    ::history(history, &event, H_SETSIZE, kHistoryLines);
    ::history(history, &event, H_SETUNIQUE, 1);
    el_set(edit, EL_HIST, &::history, history);
    if (!file.empty()) ::history(history, &event, H_LOAD, file.c_str());
  }
  ~Editor() {
    if (asked) WriteErr("\x1b[?2004l");
    if (edit != nullptr) el_end(edit);
    if (history != nullptr) history_end(history);
    if (out != nullptr) fclose(out);
  }

  static Editor* Of(EditLine* edit) {
    Editor* self = nullptr;
    el_get(edit, EL_CLIENTDATA, &self);
    return self;
  }

  static char* Prompt(EditLine* edit) { return Of(edit)->prompt.data(); }

  // Called by libedit: 1 with a character, 0 at the end, -1 on Ctrl-C. No exception may pass it.
  static int ReadCharacter(EditLine* edit, wchar_t* character) {
    Editor* self = Of(edit);
    // Behind the first prompt: pasted text is to come marked as such.
    if (!std::exchange(self->asked, true)) WriteErr("\x1b[?2004h");
    try {
      return self->Decode(character);
    } catch (...) {
      self->failure = std::current_exception();
      return -1;
    }
  }

  int Decode(wchar_t* character) {
    int byte = NextByte();
    // What the terminal puts around pasted text.
    while (byte == '\x1b' && (input->Skip("[200~") || input->Skip("[201~"))) {
      pasting = !pasting;
      byte = NextByte();
    }
    if (pasting && (byte == '\r' || byte == '\n')) return *character = kPastedBreak, 1;
    int following = FollowingBytes(byte);
    if (byte < 0) return byte == Input::kEnd ? 0 : -1;
    uint32_t code = following <= 0 ? static_cast<uint32_t>(byte)
                                   : static_cast<uint32_t>(byte) & (0x3fu >> following);
    for (; following > 0; --following) {
      byte = NextByte();
      if (byte < 0) return byte == Input::kEnd ? 0 : -1;
      if ((byte & 0xc0) != 0x80) code = 0xfffd;
      if (code != 0xfffd) code = code << 6 | (static_cast<uint32_t>(byte) & 0x3f);
    }
    const bool is_none = following < 0 || (code >= 0xd800 && code < 0xe000) || code > 0x10ffff;
    *character = static_cast<wchar_t>(is_none ? 0xfffd : code);
    return 1;
  }

  // Redraws the line meanwhile, as often as the window changes its size or the program comes back.
  int NextByte() {
    for (;;) {
      const int byte = input->ReadByte();
      if (byte != Input::kSignal || Interrupted()) return byte;
      if (!TakeRedraw()) continue;
      el_resize(edit);
      el_set(edit, EL_PREP_TERM, 0);
      el_set(edit, EL_PREP_TERM, 1);
      el_set(edit, EL_REFRESH);
    }
  }

  void Remember(const std::string& line) {
    if (line.find_first_not_of(" \t") == std::string::npos) return;
    HistEvent event;
    ::history(history, &event, H_ENTER, line.c_str());
    if (file.empty()) return;
    // Written whole or not at all. A failure is not reported.
    const std::string temporary = file + "." + std::to_string(getpid());
    MakeFolders(file);
    const mode_t mask = umask(077);
    const bool saved = ::history(history, &event, H_SAVE, temporary.c_str()) >= 0;
    umask(mask);
    if (!saved || rename(temporary.c_str(), file.c_str()) != 0) unlink(temporary.c_str());
  }

  Input* input;
  const std::string file;  // "": none
  std::string prompt;
  FILE* out = nullptr;
  EditLine* edit = nullptr;
  History* history = nullptr;
  bool asked = false, pasting = false;
  std::exception_ptr failure;
};

LineEditor::LineEditor(bool keeps_history) {
  if (CanEdit()) editor_ = std::make_unique<Editor>(&input_, keeps_history);
}

LineEditor::~LineEditor() = default;

LineEditor::Result LineEditor::Read(const std::string& prompt, std::string* line) {
  if (editor_ == nullptr) return ReadPlain(prompt, line);
  editor_->prompt = Visible(prompt);
  int length = 0;
  // Before the prompt shows, not behind it as el_gets does: the terminal would take a Ctrl-D that
  // is typed in between for itself, and lose it.
  el_set(editor_->edit, EL_PREP_TERM, 1);
  const char* text = el_gets(editor_->edit, &length);
  if (editor_->failure) std::rethrow_exception(std::exchange(editor_->failure, nullptr));
  if (Interrupted()) return Result::kInterrupted;
  if (text == nullptr) return Result::kEnd;
  line->assign(text);
  if (line->ends_with('\n')) line->pop_back();
  editor_->Remember(*line);
  for (size_t at = 0; (at = line->find(kPastedBreakUtf8, at)) != std::string::npos; ++at)
    line->replace(at, kPastedBreakUtf8.size(), "\n");
  return Result::kLine;
}

}  // namespace chat
