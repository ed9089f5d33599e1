// SPDX-License-Identifier: Apache-2.0
#include "lib/dist/rendezvous.h"

#include <string>
#include <thread>

#include "lib/base/contained.h"
#include "lib/base/error.h"

namespace dsv4 {
namespace {

// Looks at a slice that is not there yet before a rank sleeps: ranks are about equally fast.
constexpr int kLooks = 200;

}  // namespace

absl::Status Rendezvous::Post(int rank, const GatherParams& params) {
  if (absl::Status failure = Check(); !failure.ok()) return failure;
  const int64_t number = ++posted_[static_cast<size_t>(rank)].number;
  Slice& slice = SliceOf(rank, number);
  slice.data = params.slice;
  slice.rows = params.rows;
  slice.number.store(number);
  // Either this thread sees who sleeps, or the sleeper sees the number.
  if (sleeping_.load() > 0) {
    { std::lock_guard lock(mutex_); }
    changed_.notify_all();
  }
  return absl::OkStatus();
}

absl::StatusOr<const std::byte*> Rendezvous::Take(int rank, int of, const GatherParams& params) {
  const int64_t number = posted_[static_cast<size_t>(rank)].number;
  Slice& slice = SliceOf(of, number);
  const auto there = [&] { return slice.number.load() >= number; };
  for (int looks = 0; !there(); ++looks) {
    if (failed_.load()) return Failure();
    if (looks < kLooks) {
      std::this_thread::yield();
      continue;
    }
    std::unique_lock lock(mutex_);
    sleeping_.fetch_add(1);
    const bool woken = changed_.wait_for(lock, limit_, [&] { return there() || failed_.load(); });
    sleeping_.fetch_sub(1);
    lock.unlock();
    if (!woken) {
      Fail(DeviceLost("rank ", rank, " waited ", limit_.count(), " ms for exchange ", number,
                      " of rank ", of));
    }
  }
  if (slice.rows != params.rows) {
    Fail(Internal("exchange ", number, " has ", params.rows, " rows on rank ", rank, " and ",
                  slice.rows, " on rank ", of));
    return Failure();
  }
  return slice.data;
}

void Rendezvous::Fail(const absl::Status& reason) {
  std::lock_guard lock(mutex_);
  if (failed_.load()) return;
  failure_ = Contained(
      [&] { return DeviceLost("a device of the engine failed: ", std::string(reason.message())); });
  failed_.store(true);
  changed_.notify_all();
}

absl::Status Rendezvous::Failure() {
  std::lock_guard lock(mutex_);
  return failure_;
}

}  // namespace dsv4
