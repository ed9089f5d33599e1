// SPDX-License-Identifier: Apache-2.0
#include <csignal>

#include "tools/verify/command_line.h"

namespace dsv4 {
namespace {

volatile std::sig_atomic_t interrupted = 0;

}  // namespace

void CatchSignals() {
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupted = 1; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
}

bool InterruptedBySignal() { return interrupted != 0; }

}  // namespace dsv4
