// SPDX-License-Identifier: Apache-2.0
#include <windows.h>

#include <atomic>

#include "tools/verify/command_line.h"

namespace dsv4 {
namespace {

std::atomic<bool> interrupted{false};

}  // namespace

// The second Ctrl-C ends the program.
void CatchSignals() {
  SetConsoleCtrlHandler(
      [](DWORD event) -> BOOL {
        return (event == CTRL_C_EVENT || event == CTRL_BREAK_EVENT) && !interrupted.exchange(true);
      },
      TRUE);
}

bool InterruptedBySignal() { return interrupted.load(); }

}  // namespace dsv4
