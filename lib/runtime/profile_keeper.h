// SPDX-License-Identifier: Apache-2.0
// Has an engine write its expert profile every so often, on a thread of its own: what a process
// that is killed loses is what came since the last time.
#pragma once

#include <pthread.h>

#include <chrono>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "lib/base/mutex.h"

namespace dsv4 {

class ProfileKeeper {
 public:
  // `write` does not throw. OutOfHostMemory where the system gives no thread.
  static absl::StatusOr<std::unique_ptr<ProfileKeeper>> Start(std::chrono::milliseconds interval,
                                                              std::function<void()> write);
  // Waits for a write that runs.
  ~ProfileKeeper();
  ProfileKeeper(const ProfileKeeper&) = delete;
  ProfileKeeper& operator=(const ProfileKeeper&) = delete;

 private:
  ProfileKeeper(std::chrono::milliseconds interval, std::function<void()> write);
  static void* Main(void* keeper);
  void Loop();
  // Until the time of the next write; false to stop.
  bool Wait();

  const std::chrono::milliseconds interval_;
  const std::function<void()> write_;
  pthread_t thread_{};
  bool started_ = false;
  Mutex mutex_;
  CondVar stopped_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace dsv4
