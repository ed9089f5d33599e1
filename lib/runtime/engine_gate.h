// SPDX-License-Identifier: Apache-2.0
// Who may use an engine's memory, and when: calls of sessions enter while it is there; what gives
// it back waits until they have left. Any thread.
#pragma once

#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "lib/base/mutex.h"

namespace dsv4 {

class EngineGate {
 public:
  // While it lives, the gate stays open.
  class Visit {
   public:
    Visit(Visit&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)) {}
    Visit& operator=(Visit&&) = delete;
    ~Visit() {
      if (gate_ != nullptr) gate_->Leave();
    }

   private:
    friend class EngineGate;
    explicit Visit(EngineGate* gate) : gate_(gate) {}
    EngineGate* gate_;
  };

  // On the thread that ends the visit. Suspended.
  absl::StatusOr<Visit> Enter();

  // Lets nobody in and returns true once nobody is inside; false where it is closed already. Busy:
  // this thread is inside, or another one closes or opens the gate.
  absl::StatusOr<bool> Close();
  // Before it opens: true; false where it is open. Busy as Close.
  absl::StatusOr<bool> Unlock();
  // After either: what has become of it.
  void Settle(bool open);

  // Open, or not yet closed.
  bool open() const;

 private:
  enum class State { kOpen, kClosing, kClosed, kOpening };
  void Leave();

  mutable Mutex mutex_;
  CondVar empty_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kOpen;
  std::vector<std::thread::id> inside_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace dsv4
