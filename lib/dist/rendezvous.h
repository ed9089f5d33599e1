// SPDX-License-Identifier: Apache-2.0
// Synchronizes the threads of an engine's ranks: each publishes the address of its slice of an
// exchange and waits for the addresses of the others. Ranks make the same exchanges in the same
// order.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/base/mutex.h"
#include "lib/dist/communicator.h"

namespace dsv4 {

class Rendezvous {
 public:
  // `limit`: of each wait.
  Rendezvous(int ranks, std::chrono::milliseconds limit) : ranks_(ranks), limit_(limit) {}
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  int ranks() const { return ranks_; }
  std::chrono::milliseconds limit() const { return limit_; }

  // Publishes the slice of the next exchange of `rank`.
  absl::Status Post(int rank, const GatherParams& params);
  // Waits for the slice of rank `of` in the exchange that `rank` posted last. Errors: DeviceLost
  // after Fail, or after the limit.
  absl::StatusOr<const std::byte*> Take(int rank, int of, const GatherParams& params);

  // Ends all waits, for good. Any thread. The first reason is kept.
  void Fail(const absl::Status& reason);
  absl::Status Check() { return failed_.load() ? Failure() : absl::OkStatus(); }

 private:
  // The slice that a rank posted last in exchanges of one parity. When the rank posts there again,
  // every rank has already posted the exchange in between, and has therefore read this slice.
  struct alignas(64) Slice {
    std::atomic<int64_t> number{0};
    const std::byte* data = nullptr;
    int64_t rows = 0;
  };
  struct alignas(64) Posted {
    int64_t number = 0;
  };
  Slice& SliceOf(int rank, int64_t number) {
    return slices_[static_cast<size_t>(number % 2)][static_cast<size_t>(rank)];
  }
  absl::Status Failure();
  // Waits until slice `slice` has `number` or the group failed. False when the time is up.
  bool Sleep(const Slice& slice, int64_t number);

  const int ranks_;
  const std::chrono::milliseconds limit_;
  std::array<Posted, kMaxRanks> posted_;  // the last one of each rank
  std::array<std::array<Slice, kMaxRanks>, 2> slices_;
  std::atomic<int> sleeping_{0};
  std::atomic<bool> failed_{false};
  Mutex mutex_;
  CondVar changed_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace dsv4
