// SPDX-License-Identifier: Apache-2.0
// Writes an engine's expert profile at intervals, on its own thread. A process that is killed loses
// only the counts since the last write.
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
  // `write` must not throw. Errors: OutOfHostMemory if the system gives no thread.
  static absl::StatusOr<std::unique_ptr<ProfileKeeper>> Start(std::chrono::milliseconds interval,
                                                              std::function<void()> write);
  // Waits for a running write.
  ~ProfileKeeper();
  ProfileKeeper(const ProfileKeeper&) = delete;
  ProfileKeeper& operator=(const ProfileKeeper&) = delete;

 private:
  ProfileKeeper(std::chrono::milliseconds interval, std::function<void()> write);
  static void* Main(void* keeper);
  void Loop();
  // Waits until the next write is due. False: stop.
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
