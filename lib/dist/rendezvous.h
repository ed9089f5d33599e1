// SPDX-License-Identifier: Apache-2.0
// Where the threads of an engine's ranks meet: each says where its slice of an exchange lies, and
// learns where the others' do. Rank threads make the same exchanges in the same order.
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
  // `limit`: of one wait.
  Rendezvous(int ranks, std::chrono::milliseconds limit) : ranks_(ranks), limit_(limit) {}
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  int ranks() const { return ranks_; }
  std::chrono::milliseconds limit() const { return limit_; }

  // The next exchange of `rank` has this slice.
  absl::Status Post(int rank, const GatherParams& params);
  // The slice of rank `of` in the exchange that `rank` posted last, once it is there. DeviceLost
  // after Fail, and when it takes too long.
  absl::StatusOr<const std::byte*> Take(int rank, int of, const GatherParams& params);

  // Ends all waits, for good. Any thread; the first reason stays.
  void Fail(const absl::Status& reason);
  absl::Status Check() { return failed_.load() ? Failure() : absl::OkStatus(); }

 private:
  // What a rank posted last in exchanges of one parity. Before it posts there again, every rank has
  // posted the exchange between the two, and so has taken this one.
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
