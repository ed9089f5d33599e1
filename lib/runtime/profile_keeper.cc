// SPDX-License-Identifier: Apache-2.0
#include "lib/runtime/profile_keeper.h"

#include <utility>

#include "lib/base/error.h"

namespace dsv4 {

ProfileKeeper::ProfileKeeper(std::chrono::milliseconds interval, std::function<void()> write)
    : interval_(interval), write_(std::move(write)) {}

// pthreads, because std::thread throws if the system gives no thread.
absl::StatusOr<std::unique_ptr<ProfileKeeper>> ProfileKeeper::Start(
    std::chrono::milliseconds interval, std::function<void()> write) {
  std::unique_ptr<ProfileKeeper> keeper(new ProfileKeeper(interval, std::move(write)));
  const int error = pthread_create(&keeper->thread_, nullptr, Main, keeper.get());
  if (error != 0) {
    return OutOfHostMemory("cannot start a thread for the expert profile: ", SystemReason(error));
  }
  keeper->started_ = true;
  return keeper;
}

ProfileKeeper::~ProfileKeeper() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
  }
  stopped_.SignalAll();
  if (started_) pthread_join(thread_, nullptr);
}

void* ProfileKeeper::Main(void* keeper) {
  static_cast<ProfileKeeper*>(keeper)->Loop();
  return nullptr;
}

void ProfileKeeper::Loop() {
  while (Wait()) write_();
}

bool ProfileKeeper::Wait() {
  const auto time = std::chrono::steady_clock::now() + interval_;
  MutexLock lock(&mutex_);
  while (!stop_ && stopped_.WaitUntil(&mutex_, time)) {
  }
  return !stop_;
}

}  // namespace dsv4
