// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "examples/console/failure.h"
#include "examples/dsv4-server/worker_process.h"

namespace server {
namespace {

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

}  // namespace

WorkerEnd RunWorker(const Listener&, const std::function<int(int)>& work, int restarts) {
  WorkerEnd end;
  const int status = Await(Start(work, restarts), &end.stopped);
  if (WIFSIGNALED(status))
    end.ended = std::string("was ended by the signal ") + strsignal(WTERMSIG(status));
  else
    end.exit_code = WEXITSTATUS(status);
  return end;
}

std::optional<int> TakeWorkersPlace(Listener*) { return std::nullopt; }

int LeaveWorkersPlace(int exit_code) { return exit_code; }

}  // namespace server
