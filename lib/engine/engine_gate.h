// SPDX-License-Identifier: Apache-2.0
// Guards an engine's memory: calls of sessions enter while the memory exists, and suspending waits
// until they have left. Any thread.
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

  // Call it on the thread that ends the visit. Errors: Suspended; the reason of Refuse.
  absl::StatusOr<Visit> Enter();

  // Stops new visits, waits for the present ones and returns true; returns false if the gate is
  // closed. Busy: this thread holds a visit, or another thread closes or opens the gate.
  absl::StatusOr<bool> Close();
  // Begins to open the gate: true, or false if it is open. Busy as Close.
  absl::StatusOr<bool> Unlock();
  // Ends Close or Unlock that returned true, with the gate open or closed.
  void Settle(bool open);

  // From here on Enter, Close and Unlock return `reason`, which is not OK.
  void Refuse(const absl::Status& reason);
  // The reason; OK without Refuse.
  absl::Status refusal() const;

  // Open, or not yet closed.
  bool open() const;

 private:
  enum class State { kOpen, kClosing, kClosed, kOpening };
  void Leave();

  mutable Mutex mutex_;
  CondVar empty_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kOpen;
  absl::Status refusal_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread::id> inside_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace dsv4
