// SPDX-License-Identifier: Apache-2.0
// Signals, and checked reads and writes.
#pragma once

#include <dsv4/session.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace chat {

inline constexpr int kStdin = 0, kStdout = 1, kStderr = 2;
inline constexpr size_t kMaxInputBytes = size_t{256} << 20;

bool IsTerminal(int fd);

// From then on Ctrl-C sets a flag and ends a wait for input. A second one before ClearInterrupt
// ends the program. Broken pipes become failed writes. Throws a Failure.
void InstallSignals();
// A part of InstallSignals.
void IgnoreBrokenPipes();
bool Interrupted();
void ClearInterrupt();
// Whether the terminal's size has changed, or another program has used the terminal, since the last
// call.
bool TakeRedraw();

// While it lives, Ctrl-C also stops the session. One at a time.
class CancelOnInterrupt {
 public:
  // `session` must outlive this object.
  explicit CancelOnInterrupt(dsv4_session* session);
  ~CancelOnInterrupt();
  CancelOnInterrupt(const CancelOnInterrupt&) = delete;
  CancelOnInterrupt& operator=(const CancelOnInterrupt&) = delete;
};

// True if all of `text` was written. Otherwise errno has the reason.
bool WriteAll(int fd, std::string_view text);
// Writes all of `text` to standard output. Throws a Failure: silent for a closed pipe.
void WriteOut(std::string_view text);
// Writes to standard error. Ignores failures.
void WriteErr(std::string_view text);

// Reads standard input to its end. Throws a Failure if it cannot be read or is too long, and on
// Ctrl-C.
std::string ReadAllInput();

// Reads standard input by bytes. Only one object may exist, because it reads ahead.
class Input {
 public:
  static constexpr int kEnd = -1, kSignal = -2;
  // The next byte, 0 to 255; kEnd at the end, also if standard input is closed; kSignal if Ctrl-C
  // or TakeRedraw() must be checked. Throws a Failure.
  int ReadByte();
  // Removes `bytes` if they come next in the bytes that were read ahead.
  bool Skip(std::string_view bytes);

 private:
  char buffer_[4096];
  size_t begin_ = 0, end_ = 0;
};

// Columns of the terminal on standard error; 80 if it is not a terminal.
int TerminalColumns();

}  // namespace chat
