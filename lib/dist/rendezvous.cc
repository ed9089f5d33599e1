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
    { MutexLock lock(&mutex_); }
    changed_.SignalAll();
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
    if (!Sleep(slice, number)) {
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

bool Rendezvous::Sleep(const Slice& slice, int64_t number) {
  const auto end = std::chrono::steady_clock::now() + limit_;
  MutexLock lock(&mutex_);
  sleeping_.fetch_add(1);
  bool in_time = true;
  while (in_time && slice.number.load() < number && !failed_.load()) {
    in_time = changed_.WaitUntil(&mutex_, end);
  }
  sleeping_.fetch_sub(1);
  return in_time || slice.number.load() >= number || failed_.load();
}

void Rendezvous::Fail(const absl::Status& reason) {
  MutexLock lock(&mutex_);
  if (failed_.load()) return;
  failure_ = Contained(
      [&] { return DeviceLost("a device of the engine failed: ", std::string(reason.message())); });
  failed_.store(true);
  changed_.SignalAll();
}

absl::Status Rendezvous::Failure() {
  MutexLock lock(&mutex_);
  return failure_;
}

}  // namespace dsv4
