// SPDX-License-Identifier: Apache-2.0
// A thread for work that calls a device's driver. After some failures of a GPU such a call never
// returns. Whoever waits for the work then leaves the thread behind in that call.
#pragma once

#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "lib/base/thread.h"

namespace dsv4 {

class WatchedThread {
 public:
  // Errors: OutOfHostMemory if the system gives no thread.
  static absl::StatusOr<std::unique_ptr<WatchedThread>> Start(std::chrono::milliseconds limit);
  WatchedThread(const WatchedThread&) = delete;
  WatchedThread& operator=(const WatchedThread&) = delete;
  // Waits for the thread, unless it was left behind.
  ~WatchedThread();

  // Runs `work` on the thread and waits for it. False if a DriverCall of it has not returned within
  // the limit (a few percent more at most), and from then on. Such a thread executes nothing more
  // of `work`, should the call return after all. So nobody else uses what `work` was changing, but
  // its objects, its locks and its stack are never released. `work` does not throw. One thread at
  // a time.
  [[nodiscard]] bool Run(absl::FunctionRef<void()> work);

  bool left() const;
  std::chrono::milliseconds limit() const { return limit_; }
  // The thread's own.
  std::thread::id id() const;

  struct Shared;  // of this object and the thread

 private:
  WatchedThread(std::chrono::milliseconds limit, std::shared_ptr<Shared> shared)
      : limit_(limit), shared_(std::move(shared)) {}
  // Whether the thread was still in the same call as at the last look, for as long as the limit.
  class Look;

  const std::chrono::milliseconds limit_;
  const std::shared_ptr<Shared> shared_;
  Thread thread_;
  std::chrono::steady_clock::duration last_{};  // of the last work
};

// While it lives, the calling thread is in a call of a driver, or polls one, or waits for a thread
// that may be in one. On a thread that was left behind meanwhile, the destructor does not return.
// On threads that nobody watches it has no effect. May be nested.
class DriverCall {
 public:
  DriverCall();
  DriverCall(const DriverCall&) = delete;
  DriverCall& operator=(const DriverCall&) = delete;
  ~DriverCall();
};

// The result of `call`, as a DriverCall.
template <class Call>
auto InDriver(Call&& call) {
  const DriverCall in_driver;
  return std::forward<Call>(call)();
}

// Calls that threads of this process were left behind in and that have not returned. While there
// are any, calls of the same driver may not return either.
int DriverCallsLeft();

}  // namespace dsv4
