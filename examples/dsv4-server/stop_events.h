// SPDX-License-Identifier: Apache-2.0
// What ends the server from outside: SIGTERM and SIGINT; on Windows Ctrl-C, Ctrl-Break, a console
// that is closed, and the end of the session.
#pragma once

#include <chrono>
#include <optional>

namespace server {

enum class StopEvent {
  kNone,  // the time is over
  kStop,
  kLost,  // a worker has lost its device
};

// From now on they wait for those who ask for them. Before the first thread begins.
void KeepStopEvents();

// Whether kStop waits. Leaves it there. Any thread.
bool StopWaits();

// The next one; without a time, waits until one comes. One thread.
StopEvent AwaitStopEvent(std::optional<std::chrono::milliseconds> time = std::nullopt);

// kStop or kLost comes. Any thread.
void SendStopEvent(StopEvent event);

}  // namespace server
