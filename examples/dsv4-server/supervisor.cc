// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/supervisor.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <deque>
#include <string>

#include "examples/console/failure.h"

namespace server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostRestarts = 5;
constexpr std::chrono::minutes kWithin{10};

pid_t Start(const std::function<int(int)>& work, int restarts) {
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0)
    throw chat::Failure{chat::kRunTimeError,
                        std::string("no worker can be started: ") + std::strerror(errno)};
  if (child > 0) return child;
  // Ends with the parent. A terminal's Ctrl-C comes through it, too.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(chat::kRunTimeError);
  setpgid(0, 0);
  const int code = work(restarts);
  std::fflush(nullptr);
  _exit(code);
}

// The status of the child once it has ended. *stopped when a signal to stop came.
int Await(pid_t child, bool* stopped) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGCHLD, SIGINT, SIGTERM}) sigaddset(&signals, number);
  int status = 0;
  while (waitpid(child, &status, WNOHANG) != child) {
    int number = 0;
    sigwait(&signals, &number);
    if (number == SIGCHLD) continue;
    *stopped = true;
    kill(child, number);
  }
  return status;
}

std::string EndOf(int status) {
  return WIFSIGNALED(status) ? std::string("was ended by the signal ") + strsignal(WTERMSIG(status))
                             : "has lost its device";
}

}  // namespace

int Supervise(const std::function<int(int restarts)>& work) {
  std::deque<Clock::time_point> restarted;
  for (int restarts = 0;; ++restarts) {
    bool stopped = false;
    const int status = Await(Start(work, restarts), &stopped);
    const bool again = WIFSIGNALED(status) || WEXITSTATUS(status) == chat::kDeviceLost;
    if (!again) return WEXITSTATUS(status);
    if (stopped) return chat::kRunTimeError;
    const Clock::time_point now = Clock::now();
    while (!restarted.empty() && now - restarted.front() > kWithin) restarted.pop_front();
    if (restarted.size() == kMostRestarts)
      throw chat::Failure{chat::kDeviceLost, "the worker " + EndOf(status) + " after " +
                                                 std::to_string(kMostRestarts) +
                                                 " restarts in ten minutes"};
    restarted.push_back(now);
    std::fprintf(stderr, "dsv4-server: the worker %s; another one is started\n",
                 EndOf(status).c_str());
  }
}

}  // namespace server
