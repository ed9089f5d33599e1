// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/supervisor.h"

#include <chrono>
#include <cstdio>
#include <deque>
#include <string>

#include "examples/console/failure.h"
#include "examples/dsv4-server/worker_process.h"

namespace server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostRestarts = 5;
constexpr std::chrono::minutes kWithin{10};

}  // namespace

int Supervise(const Listener& listener, const std::function<int(int restarts)>& work) {
  std::deque<Clock::time_point> restarted;
  for (int restarts = 0;; ++restarts) {
    const WorkerEnd worker = RunWorker(listener, work, restarts);
    const bool lost = worker.exit_code == chat::kDeviceLost;
    if (worker.ended.empty() && !lost) return worker.exit_code;
    if (worker.stopped) return chat::kRunTimeError;
    const std::string end = lost ? "has lost its device" : worker.ended;
    const Clock::time_point now = Clock::now();
    while (!restarted.empty() && now - restarted.front() > kWithin) restarted.pop_front();
    if (restarted.size() == kMostRestarts)
      throw chat::Failure{chat::kDeviceLost, "the worker " + end + " after " +
                                                 std::to_string(kMostRestarts) +
                                                 " restarts in ten minutes"};
    restarted.push_back(now);
    std::fprintf(stderr, "dsv4-server: the worker %s; another one is started\n", end.c_str());
  }
}

}  // namespace server
