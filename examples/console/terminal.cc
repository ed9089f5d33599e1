// SPDX-License-Identifier: Apache-2.0
#include "examples/console/terminal.h"

#include <errno.h>

#include <atomic>
#include <cstring>

#include "examples/console/failure.h"
#include "examples/console/terminal_system.h"

namespace chat {
namespace {

std::atomic<bool> interrupted{false};
std::atomic<dsv4_session*> stopped_by_interrupt{nullptr};
static_assert(std::atomic<bool>::is_always_lock_free &&
                  std::atomic<dsv4_session*>::is_always_lock_free,
              "used in a signal handler");

}  // namespace

bool NoteInterrupt() {
  if (interrupted.exchange(true)) return false;
  dsv4_session_set_stopped(stopped_by_interrupt.load(), 1);
  return true;
}

void ForgetInterrupt() { interrupted.store(false); }

bool Interrupted() { return interrupted.load(); }

CancelOnInterrupt::CancelOnInterrupt(dsv4_session* session) { stopped_by_interrupt.store(session); }
CancelOnInterrupt::~CancelOnInterrupt() {
  dsv4_session_set_stopped(stopped_by_interrupt.exchange(nullptr), 0);
}

void WriteOut(std::string_view text) {
  if (WriteAll(kStdout, text)) return;
  if (errno == EPIPE) throw Failure{kRunTimeError, ""};
  throw Failure{kRunTimeError, std::string("cannot write to standard output: ") + strerror(errno)};
}

void WriteErr(std::string_view text) { WriteAll(kStderr, text); }

std::string ReadAllInput() {
  std::string input;
  char buffer[65536];
  for (;;) {
    const int64_t got = ReadSome(buffer, sizeof buffer);
    if (Interrupted()) throw Failure{kInterrupted, ""};
    if (got == 0) return input;
    if (got > 0) input.append(buffer, static_cast<size_t>(got));
    if (input.size() > kMaxInputBytes)
      throw Failure{kUsageError, "standard input holds more than 256 MiB"};
  }
}

int Input::ReadByte() {
  if (begin_ == end_) {
    const int64_t got = ReadSome(buffer_, sizeof buffer_);
    if (got <= 0) return got == 0 ? kEnd : kSignal;
    begin_ = 0;
    end_ = static_cast<size_t>(got);
  }
  return static_cast<unsigned char>(buffer_[begin_++]);
}

bool Input::Skip(std::string_view bytes) {
  if (!std::string_view(buffer_ + begin_, end_ - begin_).starts_with(bytes)) return false;
  begin_ += bytes.size();
  return true;
}

}  // namespace chat
