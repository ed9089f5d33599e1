// SPDX-License-Identifier: Apache-2.0
#include <windows.h>

#include <climits>

#include "examples/dsv4-server/stop_events.h"

namespace server {
namespace {

HANDLE stops = nullptr;  // a semaphore: how many wait
HANDLE lost = nullptr;   // an event

// On a thread of the system's.
BOOL WINAPI OnControl(DWORD event) {
  ReleaseSemaphore(stops, 1, nullptr);
  // When this returns the system ends the process; otherwise it does so after some seconds.
  if (event != CTRL_C_EVENT && event != CTRL_BREAK_EVENT) Sleep(INFINITE);
  return TRUE;
}

}  // namespace

void KeepStopEvents() {
  stops = CreateSemaphoreW(nullptr, 0, LONG_MAX, nullptr);
  lost = CreateEventW(nullptr, FALSE, FALSE, nullptr);
  // A program that was started with Ctrl-C ignored, as `start /b` does, keeps it so otherwise.
  SetConsoleCtrlHandler(nullptr, FALSE);
  SetConsoleCtrlHandler(OnControl, TRUE);
}

bool StopWaits() {
  if (WaitForSingleObject(stops, 0) != WAIT_OBJECT_0) return false;
  ReleaseSemaphore(stops, 1, nullptr);
  return true;
}

StopEvent AwaitStopEvent(std::optional<std::chrono::milliseconds> time) {
  const HANDLE events[] = {lost, stops};
  const DWORD wait = time ? static_cast<DWORD>(time->count()) : INFINITE;
  switch (WaitForMultipleObjects(2, events, FALSE, wait)) {
    case WAIT_OBJECT_0:
      return StopEvent::kLost;
    case WAIT_OBJECT_0 + 1:
      return StopEvent::kStop;
    default:
      return StopEvent::kNone;
  }
}

void SendStopEvent(StopEvent event) {
  if (event == StopEvent::kLost) SetEvent(lost);
  if (event == StopEvent::kStop) ReleaseSemaphore(stops, 1, nullptr);
}

}  // namespace server
