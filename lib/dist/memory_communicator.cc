// SPDX-License-Identifier: Apache-2.0
#include "lib/dist/memory_communicator.h"

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "lib/base/contained.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"

namespace dsv4 {
namespace {

// Looks at a slice that is not there yet before a rank sleeps: ranks are about equally fast.
constexpr int kLooks = 200;

class Group {
 public:
  Group(int ranks, std::chrono::milliseconds limit) : ranks_(ranks), limit_(limit) {}
  int ranks() const { return ranks_; }

  // Exchange `number` (from 1 on) of `rank` begins.
  void Post(int rank, int64_t number, const GatherParams& params) {
    Slice& slice = SliceOf(rank, number);
    slice.data = params.slice;
    slice.rows = params.rows;
    slice.number.store(number);
    // Either this thread sees who sleeps, or the sleeper sees the number.
    if (sleeping_.load() == 0) return;
    { std::lock_guard lock(mutex_); }
    changed_.notify_all();
  }

  // The slice of rank `of` in that exchange, once it is there.
  absl::StatusOr<const std::byte*> Take(int rank, int of, int64_t number,
                                        const GatherParams& params) {
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

  void Fail(const absl::Status& reason) {
    std::lock_guard lock(mutex_);
    if (failed_.load()) return;
    failure_ = Contained([&] {
      return DeviceLost("a device of the engine failed: ", std::string(reason.message()));
    });
    failed_.store(true);
    changed_.notify_all();
  }
  absl::Status Check() { return failed_.load() ? Failure() : absl::OkStatus(); }

 private:
  // What a rank posted last in exchanges of one parity. Before it posts there again, every rank has
  // posted the exchange between the two, and so has read this one.
  struct alignas(64) Slice {
    std::atomic<int64_t> number{0};
    const std::byte* data = nullptr;
    int64_t rows = 0;
  };
  Slice& SliceOf(int rank, int64_t number) {
    return slices_[static_cast<size_t>(number % 2)][static_cast<size_t>(rank)];
  }
  absl::Status Failure() {
    std::lock_guard lock(mutex_);
    return failure_;
  }

  const int ranks_;
  const std::chrono::milliseconds limit_;
  std::array<std::array<Slice, kMaxRanks>, 2> slices_;
  std::atomic<int> sleeping_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;  // guards failure_
  std::condition_variable changed_;
  absl::Status failure_;
};

class MemoryCommunicator final : public Communicator {
 public:
  MemoryCommunicator(std::shared_ptr<Group> group, int rank)
      : group_(std::move(group)), rank_(rank) {}
  int rank() const override { return rank_; }
  int ranks() const override { return group_->ranks(); }
  void Abort(const absl::Status& reason) override { group_->Fail(reason); }

  absl::Status AllGather(const GatherParams& params) override {
    DSV4_RETURN_IF_ERROR(group_->Check());
    const bool has_slice = params.widths[static_cast<size_t>(rank_)] > 0;
    if (has_slice && params.slice == last_slice_) {
      const absl::Status status =
          Internal("rank ", rank_, " gave a slice that the exchange before may still read");
      group_->Fail(status);
      return status;
    }
    last_slice_ = has_slice ? params.slice : nullptr;
    group_->Post(rank_, ++number_, params);
    int64_t stride = 0;
    for (const int64_t width : params.widths) stride += width;
    std::byte* column = params.whole;
    for (int rank = 0; rank < ranks(); ++rank) {
      DSV4_ASSIGN_OR_RETURN(const std::byte* const slice,
                            group_->Take(rank_, rank, number_, params));
      const int64_t width = params.widths[static_cast<size_t>(rank)];
      for (int64_t row = 0; width > 0 && row < params.rows; ++row) {
        std::memcpy(column + row * stride, slice + row * width, static_cast<size_t>(width));
      }
      column += width;
    }
    return absl::OkStatus();
  }

 private:
  const std::shared_ptr<Group> group_;
  const int rank_;
  int64_t number_ = 0;  // of the last exchange
  const std::byte* last_slice_ = nullptr;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> MemoryCommunicators(int ranks,
                                                               std::chrono::milliseconds limit) {
  const auto group = std::make_shared<Group>(ranks, limit);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int rank = 0; rank < ranks; ++rank) {
    communicators.push_back(std::make_unique<MemoryCommunicator>(group, rank));
  }
  return communicators;
}

}  // namespace dsv4
