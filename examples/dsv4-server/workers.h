// SPDX-License-Identifier: Apache-2.0
// A few threads that run tasks, first come, first served.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace server {

class Workers {
 public:
  // `niceness`: of the threads, as nice(2) counts it. Throws std::system_error if the system has no
  // thread left.
  Workers(size_t threads, int niceness);
  // Drops tasks that have not begun.
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Any thread. A task must not throw.
  void Post(std::function<void()> task);

 private:
  void Run(int niceness);
  void Stop();

  std::mutex mutex_;
  std::condition_variable posted_;
  std::deque<std::function<void()>> tasks_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace server
