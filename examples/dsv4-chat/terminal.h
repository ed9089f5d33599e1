// SPDX-License-Identifier: Apache-2.0
// What dsv4-chat needs of the system: interrupts, checked reads and writes, a progress bar.
#pragma once

#include <dsv4/dsv4.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace chat {

inline constexpr int kStdin = 0, kStdout = 1, kStderr = 2;

bool IsTerminal(int fd);

// From here on Ctrl-C sets a flag and ends what waits for input; a second one before ClearInterrupt
// ends the program. Broken pipes become failed writes. Throws a Failure.
void InstallSignals();
bool Interrupted();
void ClearInterrupt();

// While it lives, Ctrl-C also cancels what the session computes. One at a time.
class CancelOnInterrupt {
 public:
  // `session` must outlive this object.
  explicit CancelOnInterrupt(dsv4_session* session);
  ~CancelOnInterrupt();
  CancelOnInterrupt(const CancelOnInterrupt&) = delete;
  CancelOnInterrupt& operator=(const CancelOnInterrupt&) = delete;
};

// Writes all of `text` to standard output. Throws a Failure: silent for a closed pipe.
void WriteOut(std::string_view text);
// Writes to standard error, as far as it goes.
void WriteErr(std::string_view text);

// Standard input to its end. Throws a Failure when it cannot be read, is too long, or on Ctrl-C.
std::string ReadAllInput();

// Throws a Failure that names the file.
std::string ReadWholeFile(const std::string& path);

// Standard input by lines.
class LineReader {
 public:
  enum class Result { kLine, kEnd, kInterrupted };
  // `line` without its line break.
  Result Read(std::string* line);

 private:
  std::string pending_;
  bool ended_ = false;
};

// One line on standard error that fills as work is done, and is wiped at the end.
class ProgressBar {
 public:
  enum class Unit { kBytes, kTokens };
  // Nothing is shown unless `visible`.
  ProgressBar(std::string label, Unit unit, bool visible);
  ~ProgressBar() { Wipe(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void Update(uint64_t done, uint64_t total);
  void Wipe();

 private:
  std::string label_;
  Unit unit_;
  bool visible_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace chat
