// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <unistd.h>

#include "examples/dsv4-server/stop_events.h"

namespace server {
namespace {

constexpr int kLostSignal = SIGUSR1;

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT, kLostSignal}) sigaddset(&signals, number);
  return signals;
}

}  // namespace

void KeepStopEvents() {
  sigset_t signals = StopSignals();
  sigaddset(&signals, SIGCHLD);  // for whoever has a worker
  // Threads that begin later block them too.
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

bool StopWaits() {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGINT) == 1;
}

StopEvent AwaitStopEvent(std::optional<std::chrono::milliseconds> time) {
  const sigset_t signals = StopSignals();
  int number = 0;
  if (time) {
    const timespec wait{time->count() / 1000, time->count() % 1000 * 1'000'000};
    number = sigtimedwait(&signals, nullptr, &wait);
  } else {
    sigwait(&signals, &number);
  }
  if (number <= 0) return StopEvent::kNone;
  return number == kLostSignal ? StopEvent::kLost : StopEvent::kStop;
}

void SendStopEvent(StopEvent event) {
  kill(getpid(), event == StopEvent::kLost ? kLostSignal : SIGTERM);
}

}  // namespace server
