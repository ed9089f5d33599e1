// SPDX-License-Identifier: Apache-2.0
// What dsv4-chat needs of the system: signals, checked reads and writes.
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

// From here on Ctrl-C sets a flag and ends what waits for input; a second one before ClearInterrupt
// ends the program. Broken pipes become failed writes. Throws a Failure.
void InstallSignals();
bool Interrupted();
void ClearInterrupt();
// Whether the terminal has another size, or was another program's, since the last call.
bool TakeRedraw();

// While it lives, Ctrl-C also cancels what the session computes. One at a time.
class CancelOnInterrupt {
 public:
  // `session` must outlive this object.
  explicit CancelOnInterrupt(dsv4_session* session);
  ~CancelOnInterrupt();
  CancelOnInterrupt(const CancelOnInterrupt&) = delete;
  CancelOnInterrupt& operator=(const CancelOnInterrupt&) = delete;
};

// True when all of `text` is written; errno tells of the failure.
bool WriteAll(int fd, std::string_view text);
// Writes all of `text` to standard output. Throws a Failure: silent for a closed pipe.
void WriteOut(std::string_view text);
// Writes to standard error, as far as it goes.
void WriteErr(std::string_view text);

// Standard input to its end. Throws a Failure when it cannot be read, is too long, or on Ctrl-C.
std::string ReadAllInput();

// Standard input by bytes. One object for the whole of it: it reads ahead.
class Input {
 public:
  static constexpr int kEnd = -1, kSignal = -2;
  // 0 to 255; kEnd, also when standard input is closed; kSignal when Ctrl-C or TakeRedraw() is to
  // be looked at. Throws a Failure.
  int ReadByte();
  // Takes `bytes` if they are what was read ahead.
  bool Skip(std::string_view bytes);

 private:
  char buffer_[4096];
  size_t begin_ = 0, end_ = 0;
};

// Columns of the terminal on standard error; 80 when it has none.
int TerminalColumns();

}  // namespace chat
