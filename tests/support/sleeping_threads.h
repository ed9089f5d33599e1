// SPDX-License-Identifier: Apache-2.0
// Waits, without a clock, for threads to wait.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace dsv4::test {

// Whether all other threads of the process sleep.
inline bool OthersSleep() {
  const std::string self = std::to_string(syscall(SYS_gettid));
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::all_of(begin(tasks), end(tasks), [&](const std::filesystem::directory_entry& task) {
    if (task.path().filename() == self) return true;
    std::ifstream file(task.path() / "stat");
    std::string stat;
    if (!std::getline(file, stat)) return true;  // it has ended
    return stat.substr(stat.rfind(')') + 2, 1) == "S";
  });
}

// Returns once all other threads of the process sleep.
inline void AwaitSleepOfOthers() {
  while (!OthersSleep()) std::this_thread::yield();
}

}  // namespace dsv4::test
