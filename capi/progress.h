// SPDX-License-Identifier: Apache-2.0
// Adapts the progress callback of <dsv4/engine.h> to the runtime's, and limits its rate.
#pragma once

#include <dsv4/engine.h>

#include <chrono>
#include <cstdint>
#include <functional>

namespace dsv4::capi {

// Calls the callback at most every 50 ms, and always for the last report.
class Progress {
 public:
  // `callback` is not null.
  Progress(dsv4_progress_fn callback, void* user, dsv4_progress_phase phase)
      : callback_(callback), user_(user), phase_(phase) {}

  // Returns false if the callback asked to cancel.
  bool operator()(int64_t done, int64_t total) {
    const Clock::time_point now = Clock::now();
    const bool last = done == total && phase_ != DSV4_PROGRESS_SERVE;
    if (!last && now < next_) return true;
    next_ = now + std::chrono::milliseconds(50);
    const dsv4_progress_unit unit = phase_ == DSV4_PROGRESS_PREFILL || phase_ == DSV4_PROGRESS_SERVE
                                        ? DSV4_UNIT_TOKENS
                                        : DSV4_UNIT_BYTES;
    return callback_(user_, phase_, static_cast<uint64_t>(done), static_cast<uint64_t>(total),
                     unit) == 0;
  }

 private:
  using Clock = std::chrono::steady_clock;
  dsv4_progress_fn callback_;
  void* user_;
  dsv4_progress_phase phase_;
  Clock::time_point next_ = Clock::time_point::min();
};

// The runtime's progress function: empty if `callback` is null.
inline std::function<bool(int64_t, int64_t)> Reporter(dsv4_progress_fn callback, void* user,
                                                      dsv4_progress_phase phase) {
  if (callback == nullptr) return {};
  return Progress(callback, user, phase);
}

}  // namespace dsv4::capi
