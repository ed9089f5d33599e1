// SPDX-License-Identifier: Apache-2.0
// dsv4-server --isolate: the engine is in a process of its own, a worker. After some failures of a
// GPU a process gets no further use of it; another process does.
#pragma once

#include <functional>

namespace server {

// Runs `work` in a child process and returns its exit code. A child that a signal ends, or that
// ends with chat::kDeviceLost, is followed by another one, up to five times in ten minutes. Says so
// on standard error. Signals to stop are passed on. `work` gets the number of children before.
// REQUIRES: SIGCHLD, SIGINT and SIGTERM are blocked; the process has one thread, and has used no
// device.
int Supervise(const std::function<int(int restarts)>& work);

}  // namespace server
