// SPDX-License-Identifier: Apache-2.0
// dsv4-server --isolate: the engine runs in a child process, because after some failures CUDA does
// not let a process use its GPU again.
#pragma once

#include <functional>

#include "examples/dsv4-server/listener.h"

namespace server {

// Runs `work` in a child process and returns its exit code. If something else ends the child, or it
// exits with chat::kDeviceLost, starts another one, up to five times in ten minutes, and reports
// this on standard error. Forwards requests to stop. `work` receives the number of earlier
// children.
// REQUIRES: as RunWorker.
int Supervise(const Listener& listener, const std::function<int(int restarts)>& work);

}  // namespace server
