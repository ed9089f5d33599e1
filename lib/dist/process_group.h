// SPDX-License-Identifier: Apache-2.0
// Ranks in several processes, one device each, connected only by NCCL. They find each other by an
// id that the host sends from one process to the others. Rank 0 is the leader: it sends messages to
// the others, in the order of its exchanges.
//
// A thread of each process watches the exchanges. If one makes no progress for the group's limit,
// or NCCL reports a failure, every call of the group fails with DeviceLost, for good. The leader's
// thread sends an empty message after a second without messages, so that silence means that the
// leader is gone.
#pragma once

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
#include "lib/base/thread.h"
#include "lib/dist/communicator.h"
#include "lib/dist/nccl_abort.h"
#include "lib/dist/nccl_gather.h"

namespace dsv4 {

// A process's place in a group; one rank: no group.
struct GroupPlace {
  std::string id;     // CreateGroupId's, the same in all processes
  std::string build;  // of the library; must be the same in all processes
  int ranks = 1, rank = 0;
  // The limit of a wait in a step. Tests use a shorter one.
  std::chrono::milliseconds limit = std::chrono::seconds(10);
  bool grouped() const { return ranks > 1; }
};

// Creates the id of a group. The id carries the text `carried`. From then on NCCL listens in this
// process for the other processes, so this process must not end. Errors: Unsupported without NCCL.
absl::StatusOr<std::string> CreateGroupId(absl::string_view build, absl::string_view carried);
// The text that an id carries. Errors: InvalidArgument if CreateGroupId did not make the id.
absl::StatusOr<std::string> CarriedBy(absl::string_view id);

class ProcessGroup final : public Communicator {
 public:
  // The limit of the wait for other processes to join.
  static constexpr std::chrono::minutes kOpenLimit{5};
  // The limit of a wait for processes that load weights, get ready or read experts from disk, in
  // multiples of GroupPlace::limit.
  static constexpr int64_t kLoadLimits = 6;

  // Waits for the other processes.
  // - record: lines "name = value", which must be equal in all processes.
  // - own: must outlive the group.
  // Errors: InvalidArgument if CreateGroupId did not make the id; VersionMismatch for another
  // build, or for a different record (in every process, naming the first line that differs from
  // rank 0's and both values); Unsupported without NCCL; DeviceLost if a process does not join.
  static absl::StatusOr<std::unique_ptr<ProcessGroup>> Join(const GroupPlace& place,
                                                            const DeviceRank& own,
                                                            absl::string_view record);
  // Without graphs that exchanges were recorded in. A leader that has opened and not failed tells
  // the others that it closes.
  ~ProcessGroup() override;

  int rank() const override { return place_.rank; }
  int ranks() const override { return place_.ranks; }
  // Waits until every process has called this. Makes the connections.
  absl::Status Start() override;
  absl::Status AllGather(const GatherParams& params) override;
  absl::Status Synchronize() override;
  absl::Status Check() override;
  void Abort(const absl::Status& reason) override;

  // Returns the leader's bytes in every process. Called before Opened.
  absl::StatusOr<std::vector<std::byte>> FromLeader(absl::Span<const std::byte> message);
  // Reports that `done` bytes of `total` are loaded. Waits from time to time until the other
  // processes have loaded as much, so that a process that ended is noticed.
  absl::Status Loaded(int64_t done, int64_t total);
  // All processes have opened. From then on waits have the group's limit, or kLoadLimits times as
  // long if steps read from disks, which are not equally fast.
  absl::Status Opened(bool from_disk);

  // For the leader. A thread holds this mutex while it sends a message and makes the exchanges that
  // follow from it.
  Mutex* sending() ABSL_LOCK_RETURNED(sending_) { return &sending_; }
  // Sent before the next message. Any thread.
  void AddBefore(absl::Span<const std::byte> message);
  absl::Status Send(absl::Span<const std::byte> message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sending_);

  // For the other processes: waits for the next message, which may be empty. *closed: the leader
  // has closed, and no message follows.
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
  absl::Status ConnectWithin(const Nccl::UniqueId& id, Nccl::Comm* comm);
  absl::Status CompareRecords(Nccl::Comm comm, absl::string_view record, Nccl::UniqueId* next);
  absl::Status StartWatching();
  static void WatchMain(void* group);
  void Watch();
  void Ping();
  // Fails the group and aborts NCCL if a limit has passed.
  void Look();
  void EndWaits(Nccl::Comm comm) ABSL_EXCLUSIVE_LOCKS_REQUIRED(looking_);
  void Progressed();
  // Calls enqueue(communicator). No other thread aborts the communicator meanwhile.
  absl::Status Enqueue(absl::FunctionRef<absl::Status(Nccl::Comm comm)> enqueue);
  absl::Status Broadcast(int64_t bytes);
  absl::Status SendAll(absl::Span<const std::byte> message, bool closed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(sending_);
  // A short exchange of all processes.
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
  Thread watcher_;
  bool watching_ = false, opened_ = false;
  NcclAbort abort_ ABSL_GUARDED_BY(looking_);
};

}  // namespace dsv4
