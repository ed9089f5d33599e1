// SPDX-License-Identifier: Apache-2.0
#include "examples/console/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "examples/console/failure.h"
#include "examples/console/terminal_system.h"

namespace chat {
namespace {

std::atomic<bool> redraw{false};
static_assert(std::atomic<bool>::is_always_lock_free, "used in a signal handler");

// Holds a byte while Interrupted() or `redraw` is set: what waits for input waits for it too, so
// that a Ctrl-C is noticed whenever it comes, and whichever thread the system gives it to.
int wake_pipe[2] = {-1, -1};

void OnInterrupt(int number) {
  const int saved_errno = errno;
  if (NoteInterrupt()) {
    (void)!write(wake_pipe[1], "", 1);
  } else {
    signal(number, SIG_DFL);
    raise(number);
  }
  errno = saved_errno;
}

void OnRedraw(int) {
  const int saved_errno = errno;
  redraw.store(true);
  (void)!write(wake_pipe[1], "", 1);
  errno = saved_errno;
}

void Drain() {
  char byte;
  while (read(wake_pipe[0], &byte, 1) > 0) {
  }
}

[[noreturn]] void FailToRead() {
  throw Failure{kRunTimeError, std::string("cannot read standard input: ") + strerror(errno)};
}

}  // namespace

int64_t ReadSome(char* buffer, size_t size) {
  if (Interrupted()) return -1;
  pollfd waits[] = {{.fd = kStdin, .events = POLLIN, .revents = 0},
                    {.fd = wake_pipe[0], .events = POLLIN, .revents = 0}};
  if (poll(waits, 2, -1) < 0) {
    if (errno == EINTR) return -1;
    FailToRead();
  }
  if (waits[1].revents != 0) {
    // Ctrl-C is looked at until it is cleared.
    if (!Interrupted()) Drain();
    return -1;
  }
  const ssize_t got = read(kStdin, buffer, size);
  if (got < 0 && errno == EBADF) return 0;
  if (got < 0 && errno != EINTR && errno != EAGAIN) FailToRead();
  return got;
}

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
  action.sa_handler = &OnRedraw;
  action.sa_flags = SA_RESTART;
  sigaction(SIGWINCH, &action, nullptr);
  sigaction(SIGCONT, &action, nullptr);
  IgnoreBrokenPipes();
}

void IgnoreBrokenPipes() { signal(SIGPIPE, SIG_IGN); }

bool TakeRedraw() { return redraw.exchange(false); }

void ClearInterrupt() {
  ForgetInterrupt();
  Drain();
}

bool WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

int TerminalColumns() {
  winsize size{};
  return ioctl(kStderr, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace chat
