// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/workers.h"

#include <utility>

#include "examples/dsv4-server/system_limits.h"

namespace server {

Workers::Workers(size_t threads, int niceness) {
  try {
    while (threads_.size() < threads) threads_.emplace_back([this, niceness] { Run(niceness); });
  } catch (...) {
    Stop();
    throw;
  }
}

Workers::~Workers() { Stop(); }

void Workers::Stop() {
  std::deque<std::function<void()>> dropped;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    dropped.swap(tasks_);
  }
  posted_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Workers::Post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    if (ending_) return;
    tasks_.push_back(std::move(task));
  }
  posted_.notify_one();
}

void Workers::Run(int niceness) {
  SetNiceness(niceness);
  std::unique_lock lock(mutex_);
  for (;;) {
    posted_.wait(lock, [&] { return ending_ || !tasks_.empty(); });
    if (ending_) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    task = nullptr;  // what it holds goes without the lock
    lock.lock();
  }
}

}  // namespace server
