// SPDX-License-Identifier: Apache-2.0
// Ranks in several processes, one device each, which NCCL connects: there is no other channel
// between them. They find each other by an id that the host carries from one to the other. Rank 0
// leads: it sends the others messages, in the order of its exchanges.
//
// A thread of each process watches its exchanges. Once one makes no progress for the group's limit,
// or NCCL reports a failure, everything of the group fails with DeviceLost, for good. The leader's
// thread sends an empty message when nothing else was sent for a second, so that silence means
// that it is gone.
#pragma once

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lib/base/mutex.h"
#include "lib/dist/communicator.h"
#include "lib/dist/nccl_abort.h"
#include "lib/dist/nccl_gather.h"

namespace dsv4 {

// A process's place in a group; one rank: no group.
struct GroupPlace {
  std::string id;     // CreateGroupId's, the same in all processes
  std::string build;  // of the library: all have the same
  int ranks = 1, rank = 0;
  // Of a wait of a step. Tests have less time.
  std::chrono::milliseconds limit = std::chrono::seconds(10);
  bool grouped() const { return ranks > 1; }
};

// A text for one group, which carries another one. NCCL listens for the other processes from here
// on, in this process, which must stay. Unsupported without NCCL.
absl::StatusOr<std::string> CreateGroupId(absl::string_view build, absl::string_view carried);
// What an id carries. InvalidArgument for another text than CreateGroupId's.
absl::StatusOr<std::string> CarriedBy(absl::string_view id);

class ProcessGroup final : public Communicator {
 public:
  // Of a wait for other processes that join.
  static constexpr std::chrono::minutes kOpenLimit{5};
  // Of one for processes that load weights, get ready or read experts from disk, in
  // GroupPlace::limit.
  static constexpr int64_t kLoadLimits = 6;

  // Waits for the other processes. `record`: lines "name = value"; VersionMismatch names the first
  // that differs from rank 0's, with both values, in every process. `own` outlives the group.
  // Errors: InvalidArgument for another id than CreateGroupId's, VersionMismatch for another
  // build's, Unsupported without NCCL, DeviceLost where the others do not come.
  static absl::StatusOr<std::unique_ptr<ProcessGroup>> Join(const GroupPlace& place,
                                                            const DeviceRank& own,
                                                            absl::string_view record);
  // Without graphs that exchanges were recorded in. A leader that has opened and not failed tells
  // the others that it closes.
  ~ProcessGroup() override;

  int rank() const override { return place_.rank; }
  int ranks() const override { return place_.ranks; }
  // Waits until every process has come here; connections are made.
  absl::Status Start() override;
  absl::Status AllGather(const GatherParams& params) override;
  absl::Status Synchronize() override;
  absl::Status Check() override;
  void Abort(const absl::Status& reason) override;

  // What the leader has for all, in every process. Before Opened.
  absl::StatusOr<std::vector<std::byte>> FromLeader(absl::Span<const std::byte> message);
  // `done` bytes of `total` are loaded. Waits now and then until the other processes are as far, so
  // that one that is gone is noticed.
  absl::Status Loaded(int64_t done, int64_t total);
  // All processes have opened: from here on waits have the group's limit, or kLoadLimits of it
  // where steps read from disks, which are not equally fast.
  absl::Status Opened(bool from_disk);

  // The leader. Whoever sends, and makes the exchanges that follow from it, holds the mutex.
  Mutex* sending() ABSL_LOCK_RETURNED(sending_) { return &sending_; }
  // Sent before the next message. Any thread.
  void AddBefore(absl::Span<const std::byte> message);
  absl::Status Send(absl::Span<const std::byte> message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sending_);

  // The others: the next message; it may be empty. *closed: the leader has closed, and there are no
  // more.
  absl::StatusOr<std::vector<std::byte>> Receive(bool* closed);

 private:
  using Clock = std::chrono::steady_clock;
  struct Header {
    int64_t bytes = 0;  // of the message
    int64_t closed = 0;
  };

  ProcessGroup(const GroupPlace& place, const Nccl* nccl, const DeviceRank& own)
      : place_(place), nccl_(nccl), own_(own) {}
  absl::Status Connect(Nccl::UniqueId id, absl::string_view record);
  absl::Status CompareRecords(Nccl::Comm comm, absl::string_view record, Nccl::UniqueId* next);
  absl::Status StartWatching();
  static void* WatchMain(void* group);
  void Watch();
  void Ping();
  // Fails, and ends what NCCL waits for, once it is time to.
  void Look();
  void EndWaits(Nccl::Comm comm) ABSL_EXCLUSIVE_LOCKS_REQUIRED(looking_);
  void Progressed();
  // Calls enqueue(communicator). No other thread aborts the communicator meanwhile.
  absl::Status Enqueue(absl::FunctionRef<absl::Status(Nccl::Comm comm)> enqueue);
  absl::Status Broadcast(int64_t bytes);
  absl::Status SendAll(absl::Span<const std::byte> message, bool closed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(sending_);
  // A short exchange of all.
  absl::Status Meet();
  std::byte* staging() const { return memory_.data() + kTickBytes * kTicks; }

  // Values of the tick that exchanges of many rows leave in host memory.
  static constexpr int64_t kTickBytes = 16, kTicks = 13;

  const GroupPlace place_;
  const Nccl* const nccl_;
  const DeviceRank own_;
  Buffer memory_;  // ticks, then staging
  Buffer tick_;    // pinned
  std::atomic<Nccl::Comm> comm_{nullptr};
  std::atomic<bool> failed_{false}, pending_{false}, stop_{false};
  std::atomic<Clock::rep> progressed_{0}, sent_{0};
  std::atomic<std::chrono::milliseconds::rep> limit_;
  int64_t loaded_ = 0;
  Mutex looking_, sending_, enqueueing_, mutex_;
  std::vector<std::byte> message_ ABSL_GUARDED_BY(sending_);  // the last one sent; keeps its memory
  int64_t exchanges_ ABSL_GUARDED_BY(enqueueing_) = 0;
  uint32_t seen_tick_ ABSL_GUARDED_BY(looking_) = 0;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::byte> before_ ABSL_GUARDED_BY(mutex_);
  pthread_t watcher_{};
  bool watching_ = false, opened_ = false;
  NcclAbort abort_ ABSL_GUARDED_BY(looking_);
};

}  // namespace dsv4
