// SPDX-License-Identifier: Apache-2.0
// The console, in UTF-16, with its own editing and history of lines; other streams as bytes.
#include "examples/console/terminal.h"

#include <errno.h>
#include <io.h>
#include <windows.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include "examples/console/failure.h"
#include "examples/console/terminal_system.h"

namespace chat {
namespace {

std::atomic<int> last_columns{0};

// The thread that reads, while it does: its read is cancelled by Ctrl-C.
HANDLE main_thread = nullptr;
std::atomic<bool> reading{false};

constexpr wchar_t kCtrlZ = 26;  // the console's end of input
constexpr DWORD kNotice = 100;  // milliseconds until the handler's thread has run

// On a thread of its own.
BOOL WINAPI OnControl(DWORD event) {
  if (event != CTRL_C_EVENT && event != CTRL_BREAK_EVENT) return FALSE;
  if (!NoteInterrupt()) return FALSE;  // the second one ends the program
  for (int i = 0; i < 100 && reading.load(); ++i) {
    CancelSynchronousIo(main_thread);
    Sleep(1);
  }
  return TRUE;
}

HANDLE Handle(int fd) {
  return GetStdHandle(fd == kStdin    ? STD_INPUT_HANDLE
                      : fd == kStdout ? STD_OUTPUT_HANDLE
                                      : STD_ERROR_HANDLE);
}

bool IsConsole(HANDLE handle) {
  DWORD mode = 0;
  return GetConsoleMode(handle, &mode) != 0;
}

[[noreturn]] void FailToRead(DWORD error) {
  throw Failure{kRunTimeError, "cannot read standard input: " +
                                   std::system_category().message(static_cast<int>(error))};
}

// UTF-16 of the console that is not yet a whole character, and UTF-8 that was not asked for.
std::wstring half;
std::string ahead;

// A line of the console, as UTF-8 with LF. False when Ctrl-C came.
bool ReadConsoleLine() {
  wchar_t wide[4096];
  DWORD got = 0;
  if (!ReadConsoleW(Handle(kStdin), wide, std::size(wide), &got, nullptr) || got == 0) {
    const DWORD error = GetLastError();
    for (DWORD i = 0; i < kNotice && !Interrupted(); ++i) Sleep(1);
    if (Interrupted() || error == ERROR_OPERATION_ABORTED) return false;
    FailToRead(error);
  }
  std::wstring text = std::exchange(half, {});
  text.append(wide, got);
  text.erase(std::remove(text.begin(), text.end(), L'\r'), text.end());
  if (!text.empty() && IS_HIGH_SURROGATE(text.back())) {
    half = text.back();
    text.pop_back();
  }
  const int length = static_cast<int>(text.size());
  const int bytes =
      WideCharToMultiByte(CP_UTF8, 0, text.data(), length, nullptr, 0, nullptr, nullptr);
  ahead.resize(static_cast<size_t>(bytes));
  WideCharToMultiByte(CP_UTF8, 0, text.data(), length, ahead.data(), bytes, nullptr, nullptr);
  return true;
}

bool WriteToConsole(HANDLE console, std::string_view text) {
  std::wstring wide(text.size(), L'\0');
  wide.resize(static_cast<size_t>(MultiByteToWideChar(CP_UTF8, 0, text.data(),
                                                      static_cast<int>(text.size()), wide.data(),
                                                      static_cast<int>(wide.size()))));
  for (size_t at = 0; at < wide.size();) {
    constexpr size_t kMost = 8192;
    DWORD written = 0;
    if (!WriteConsoleW(console, wide.data() + at,
                       static_cast<DWORD>(std::min(kMost, wide.size() - at)), &written, nullptr)) {
      errno = EIO;
      return false;
    }
    at += written;
  }
  return true;
}

int Columns() {
  CONSOLE_SCREEN_BUFFER_INFO info{};
  if (!GetConsoleScreenBufferInfo(Handle(kStderr), &info)) return 80;
  return std::max(1, info.srWindow.Right - info.srWindow.Left + 1);
}

}  // namespace

int64_t ReadSome(char* buffer, size_t size) {
  if (Interrupted()) return -1;
  const HANDLE input = Handle(kStdin);
  if (input == nullptr || input == INVALID_HANDLE_VALUE) return 0;
  if (IsConsole(input)) {
    if (ahead.empty() && !ReadConsoleLine()) return -1;
    if (!ahead.empty() && ahead[0] == static_cast<char>(kCtrlZ)) return ahead.clear(), 0;
    const size_t taken = std::min(size, ahead.size());
    std::memcpy(buffer, ahead.data(), taken);
    ahead.erase(0, taken);
    return taken > 0 ? static_cast<int64_t>(taken) : -1;
  }
  DWORD got = 0;
  reading.store(true);
  const bool read =
      Interrupted() ? false : ReadFile(input, buffer, static_cast<DWORD>(size), &got, nullptr);
  const DWORD error = GetLastError();
  reading.store(false);
  if (read) return got;
  if (Interrupted()) return -1;
  if (error == ERROR_BROKEN_PIPE || error == ERROR_HANDLE_EOF || error == ERROR_INVALID_HANDLE)
    return 0;
  FailToRead(error);
}

bool IsTerminal(int fd) { return IsConsole(Handle(fd)); }

void InstallSignals() {
  if (!DuplicateHandle(GetCurrentProcess(), GetCurrentThread(), GetCurrentProcess(), &main_thread,
                       0, FALSE, DUPLICATE_SAME_ACCESS) ||
      !SetConsoleCtrlHandler(&OnControl, TRUE))
    throw Failure{kRunTimeError, "cannot catch Ctrl-C"};
  last_columns.store(Columns());
}

bool TakeRedraw() {
  const int columns = Columns();
  return last_columns.exchange(columns) != columns;
}

void IgnoreBrokenPipes() {}  // a write to one is an error there, and nothing else

void ClearInterrupt() { ForgetInterrupt(); }

bool WriteAll(int fd, std::string_view text) {
  if (fd <= kStderr && IsConsole(Handle(fd))) return WriteToConsole(Handle(fd), text);
  constexpr size_t kMost = size_t{1} << 20;
  while (!text.empty()) {
    const int written =
        _write(fd, text.data(), static_cast<unsigned>(std::min(kMost, text.size())));
    if (written < 0) {
      if (errno == EINVAL) errno = EPIPE;  // what a pipe whose reader is gone gives
      return false;
    }
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

int TerminalColumns() { return Columns(); }

}  // namespace chat
