// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-chat/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>

#include "examples/dsv4-chat/failure.h"

namespace chat {
namespace {

constexpr size_t kMaxInputBytes = size_t{256} << 20;

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "used in a signal handler");

std::atomic<dsv4_session*> cancelled_by_interrupt{nullptr};
static_assert(std::atomic<dsv4_session*>::is_always_lock_free, "used in a signal handler");

// Holds a byte while `interrupted` is set: what waits for input waits for it too, so that a Ctrl-C
// is noticed whenever it comes, and whichever thread the system gives it to.
int wake_pipe[2] = {-1, -1};

void OnInterrupt(int number) {
  const int saved_errno = errno;
  if (interrupted.exchange(true)) {
    signal(number, SIG_DFL);
    raise(number);
  } else {
    (void)!write(wake_pipe[1], "", 1);
    dsv4_session_cancel(cancelled_by_interrupt.load());
  }
  errno = saved_errno;
}

// True when all of `text` is written; errno tells of the failure.
bool WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

void Drain() {
  char byte;
  while (read(wake_pipe[0], &byte, 1) > 0) {
  }
}

[[noreturn]] void FailToRead() {
  throw Failure{kRunTimeError, std::string("cannot read standard input: ") + strerror(errno)};
}

// Waits for input. Bytes read, 0 at the end or when standard input is closed, -1 when a signal came
// first.
ssize_t ReadSome(char* buffer, size_t size) {
  if (Interrupted()) return -1;
  pollfd waits[] = {{.fd = kStdin, .events = POLLIN, .revents = 0},
                    {.fd = wake_pipe[0], .events = POLLIN, .revents = 0}};
  if (poll(waits, 2, -1) < 0) {
    if (errno == EINTR) return -1;
    FailToRead();
  }
  if (waits[1].revents != 0) {
    // A byte that came after its flag was cleared.
    if (!Interrupted()) Drain();
    return -1;
  }
  const ssize_t got = read(kStdin, buffer, size);
  if (got < 0 && errno == EBADF) return 0;
  if (got < 0 && errno != EINTR && errno != EAGAIN) FailToRead();
  return got;
}

int TerminalColumns() {
  winsize size{};
  return ioctl(kStderr, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string Amount(double value, ProgressBar::Unit unit) {
  char text[48];
  if (unit == ProgressBar::Unit::kTokens) {
    std::snprintf(text, sizeof text, "%.0f tok", value);
  } else if (value < 1e9) {
    std::snprintf(text, sizeof text, "%.1f MB", value * 1e-6);
  } else {
    std::snprintf(text, sizeof text, "%.1f GB", value * 1e-9);
  }
  return text;
}

}  // namespace

bool IsTerminal(int fd) { return isatty(fd) == 1; }

void InstallSignals() {
  int ends[2] = {-1, -1};
  const bool made = pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0;
  for (int i = 0; made && i < 2; ++i) {
    // Not in the place of a standard stream that is closed.
    wake_pipe[i] = fcntl(ends[i], F_DUPFD_CLOEXEC, kStderr + 1);
    close(ends[i]);
  }
  if (wake_pipe[0] < 0 || wake_pipe[1] < 0)
    throw Failure{kRunTimeError, std::string("cannot make a pipe: ") + strerror(errno)};
  struct sigaction action {};
  action.sa_handler = &OnInterrupt;
  sigaction(SIGINT, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

bool Interrupted() { return interrupted.load(); }

void ClearInterrupt() {
  interrupted.store(false);
  Drain();
}

CancelOnInterrupt::CancelOnInterrupt(dsv4_session* session) {
  cancelled_by_interrupt.store(session);
}
CancelOnInterrupt::~CancelOnInterrupt() { cancelled_by_interrupt.store(nullptr); }

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
    const ssize_t got = ReadSome(buffer, sizeof buffer);
    if (Interrupted()) throw Failure{kInterrupted, ""};
    if (got == 0) return input;
    if (got > 0) input.append(buffer, static_cast<size_t>(got));
    if (input.size() > kMaxInputBytes)
      throw Failure{kUsageError, "standard input holds more than 256 MiB"};
  }
}

std::string ReadWholeFile(const std::string& path) {
  const auto fail = [&](const std::string& why) {
    return Failure{kUsageError, "cannot read " + path + ": " + why};
  };
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw fail(strerror(errno));
  std::string text;
  char buffer[65536];
  ssize_t got;
  while ((got = read(file, buffer, sizeof buffer)) > 0 && text.size() <= kMaxInputBytes)
    text.append(buffer, static_cast<size_t>(got));
  const int read_errno = errno;
  close(file);
  if (got < 0) throw fail(strerror(read_errno));
  if (got > 0) throw fail("it is longer than 256 MiB");
  return text;
}

LineReader::Result LineReader::Read(std::string* line) {
  for (;;) {
    const size_t end = pending_.find('\n');
    if (end != std::string::npos || (ended_ && !pending_.empty())) {
      *line = pending_.substr(0, end);
      pending_.erase(0, end == std::string::npos ? end : end + 1);
      return Result::kLine;
    }
    if (ended_) return Result::kEnd;
    char buffer[4096];
    const ssize_t got = ReadSome(buffer, sizeof buffer);
    if (Interrupted()) return Result::kInterrupted;
    if (got > 0) pending_.append(buffer, static_cast<size_t>(got));
    ended_ = got == 0;
  }
}

ProgressBar::ProgressBar(std::string label, Unit unit, bool visible)
    : label_(std::move(label)),
      unit_(unit),
      visible_(visible),
      start_(std::chrono::steady_clock::now()) {}

void ProgressBar::Update(uint64_t done, uint64_t total) {
  if (!visible_ || total == 0) return;
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
  const double share = static_cast<double>(done) / static_cast<double>(total);
  char percent[16];
  std::snprintf(percent, sizeof percent, "%3.0f %%", 100 * share);
  std::string after = std::string(" ") + percent + "  " + Amount(rate, unit_) + "/s";
  if (rate > 0 && done < total) {
    char left[32];
    std::snprintf(left, sizeof left, "  %.0f s left", static_cast<double>(total - done) / rate);
    after += left;
  }
  const int room = TerminalColumns() - static_cast<int>(label_.size() + after.size()) - 4;
  const size_t width = static_cast<size_t>(std::clamp(room, 0, 40));
  const size_t filled = static_cast<size_t>(share * static_cast<double>(width));
  std::string line = "\r";
  line += label_;
  line += width > 0 ? " [" : " ";
  line.append(filled, '#').append(width - filled, ' ');
  if (width > 0) line += "]";
  WriteErr(line + after + "\x1b[K");
  drawn_ = true;
}

void ProgressBar::Wipe() {
  if (drawn_) WriteErr("\r\x1b[K");
  drawn_ = false;
}

}  // namespace chat
