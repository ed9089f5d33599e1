// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/engine_gate.h"

#include <algorithm>

#include "lib/base/error.h"

namespace dsv4 {
namespace {

absl::Status InUse() { return Busy("the engine is being suspended or resumed by another call"); }

}  // namespace

absl::StatusOr<EngineGate::Visit> EngineGate::Enter() {
  MutexLock lock(&mutex_);
  if (!refusal_.ok()) return refusal_;
  if (state_ != State::kOpen)
    return Suspended("the engine is suspended; call dsv4_engine_resume first");
  inside_.push_back(std::this_thread::get_id());
  return Visit(this);
}

void EngineGate::Leave() {
  MutexLock lock(&mutex_);
  inside_.erase(std::find(inside_.begin(), inside_.end(), std::this_thread::get_id()));
  if (inside_.empty()) empty_.SignalAll();
}

absl::StatusOr<bool> EngineGate::Close() {
  MutexLock lock(&mutex_);
  if (!refusal_.ok()) return refusal_;
  if (state_ == State::kClosed) return false;
  if (state_ != State::kOpen) return InUse();
  if (std::find(inside_.begin(), inside_.end(), std::this_thread::get_id()) != inside_.end()) {
    return Busy("called from a callback of one of the engine's sessions");
  }
  state_ = State::kClosing;
  while (!inside_.empty() && refusal_.ok()) empty_.Wait(&mutex_);
  if (refusal_.ok()) return true;
  state_ = State::kOpen;
  return refusal_;
}

absl::StatusOr<bool> EngineGate::Unlock() {
  MutexLock lock(&mutex_);
  if (!refusal_.ok()) return refusal_;
  if (state_ == State::kOpen) return false;
  if (state_ != State::kClosed) return InUse();
  state_ = State::kOpening;
  return true;
}

void EngineGate::Settle(bool open) {
  MutexLock lock(&mutex_);
  state_ = open ? State::kOpen : State::kClosed;
}

void EngineGate::Refuse(const absl::Status& reason) {
  MutexLock lock(&mutex_);
  refusal_ = reason;
  empty_.SignalAll();
}

absl::Status EngineGate::refusal() const {
  MutexLock lock(&mutex_);
  return refusal_;
}

bool EngineGate::open() const {
  MutexLock lock(&mutex_);
  return state_ == State::kOpen || state_ == State::kClosing;
}

}  // namespace dsv4
