// SPDX-License-Identifier: Apache-2.0
// The process of an engine of --isolate: a fork of this one; on Windows the program, started anew.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "examples/dsv4-server/listener.h"

namespace server {

struct WorkerEnd {
  int exit_code = 0;
  // What ended it, if it did not exit by itself: "was ended by ...".
  std::string ended;
  bool stopped = false;  // a request to stop came
};

// Runs work(restarts) in a child process until it ends, and passes requests to stop on. The child
// ends with this process. Throws a chat::Failure if none can be started.
// REQUIRES: KeepStopEvents; the process has one thread, and has used no device.
WorkerEnd RunWorker(const Listener& listener, const std::function<int(int restarts)>& work,
                    int restarts);

// How many workers came before this one, if RunWorker of another process started this process, with
// the socket that it listens on. Not where workers are forks. Throws a chat::Failure.
std::optional<int> TakeWorkersPlace(Listener* listener);

// This process, which is such a worker, ends by itself with this code. Returns it.
int LeaveWorkersPlace(int exit_code);

}  // namespace server
