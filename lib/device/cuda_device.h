// SPDX-License-Identifier: Apache-2.0
// A CUDA device: its streams, memory, and transfers through pinned staging memory. Every call makes
// the device current for its own duration only. After a failed call or kernel every later call
// returns the same error: CUDA cannot recover from it within a process.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>

#include "lib/base/mutex.h"
#include "lib/device/cuda_stream.h"
#include "lib/device/device.h"

namespace dsv4 {

class GraphClock;

class CudaDevice final : public Device {
 public:
  // See Device::Check. Refuses a device that none of the build's images runs on.
  static absl::Status Check(int32_t index);
  // REQUIRES: Check.
  // `pages_memory`: see DeviceOptions.
  static absl::StatusOr<std::unique_ptr<Device>> Open(int32_t index, bool pages_memory);
  ~CudaDevice() override;

  std::string name() const override { return traits_.name; }
  int32_t index() const override { return index_; }
  std::string bus_id() override;
  Stream& stream() override { return *stream_; }
  Stream* side_stream() override { return side_stream_.get(); }
  absl::Status Fork() override;
  absl::Status Join() override;
  int threads() const override { return 1; }
  DeviceTraits traits() const override { return traits_; }
  absl::StatusOr<Buffer> Allocate(int64_t bytes, absl::string_view purpose) override;
  absl::StatusOr<Buffer> AllocateHost(int64_t bytes, absl::string_view purpose) override;
  std::optional<int64_t> FreeBytes() override;
  bool host_memory() const override { return false; }
  bool integrated() const override { return integrated_; }
  absl::Status Upload(std::byte* to, const std::byte* from, int64_t bytes) override;
  absl::Status Download(std::byte* to, const std::byte* from, int64_t bytes) override;
  absl::Status Copy(std::byte* to, const std::byte* from, int64_t bytes) override;
  absl::Status StartCopies(absl::Span<const MemoryCopy> copies) override;
  absl::StatusOr<bool> CopiesDone() override { return IsDone(copied_); }
  absl::Status StartLane(int lane, absl::Span<const MemoryCopy> copies) override;
  absl::Status AwaitLane(int lane) override;
  absl::Status FreeLane(int lane) override;
  double LaneSeconds() override;
  absl::Status Mark(int number) override;
  absl::Status Await(int number) override;
  absl::Status Gather(std::byte* to, absl::Span<const MemoryPiece> from) override;
  absl::Status Scatter(absl::Span<const MemoryPiece> to, const std::byte* from) override;
  absl::Status ReachMemoryOf(Device& other) override;
  absl::StatusOr<bool> Idle() override;
  absl::Status Synchronize() override;
  absl::StatusOr<std::unique_ptr<Graph>> Record(absl::FunctionRef<absl::Status()> enqueue) override;
  double SecondsOf(absl::FunctionRef<void()> enqueue) override;
  bool limits_kernels() const override { return limits_kernels_; }
  bool TakeWaitingBlocks() override;
  double GraphSecondsOf(absl::FunctionRef<void()> run) override;
  int Enter() override;
  void Leave(int before) override;

 private:
  // A part of the staging memory, and the event after which it may be written again.
  struct StagingPart {
    std::byte* data = nullptr;
    void* event = nullptr;  // cudaEvent_t
  };
  CudaDevice(int32_t index, bool integrated, bool pages_memory, DeviceTraits traits)
      : index_(index),
        integrated_(integrated),
        pages_memory_(pages_memory),
        traits_(std::move(traits)) {}
  absl::Status OpenStream();
  absl::StatusOr<void*> NewEvent(bool timed = false);  // a cudaEvent_t
  absl::StatusOr<bool> IsDone(void* event);
  absl::StatusOr<bool> Came(int result);
  // Staging memory of `bytes`, at most a part: the rest of the current part or, once its last
  // transfer is done, the next part. Call MarkPart after a transfer from there.
  absl::StatusOr<std::byte*> Stage(int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status MarkPart() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status RecordOn(const CudaStream& stream, void* event);
  absl::Status WaitOn(const CudaStream& stream, void* event);
  // Later work of `to` follows all earlier work of `from`.
  absl::Status Order(const CudaStream& from, void* event, const CudaStream& to);
  // `begun` may be null.
  absl::Status CopyBetween(void* after, void* begun, absl::Span<const MemoryCopy> copies,
                           void* done);
  // The status of a call's result. An error is remembered.
  absl::Status CheckCall(int result, absl::string_view what);
  // CheckCall for a call on a graph; `what` is its verb, as in "making". OutOfDeviceMemory if
  // memory ran out.
  absl::Status CheckGraph(int result, absl::string_view what);

  const int32_t index_;
  const bool integrated_, pages_memory_;
  const DeviceTraits traits_;
  bool limits_kernels_ = false;
  bool has_waiting_blocks_ = false;
  std::unique_ptr<CudaStream> stream_, side_stream_, copy_stream_;
  // cudaEvent_t
  void *forked_ = nullptr, *joined_ = nullptr, *copying_ = nullptr, *copied_ = nullptr;
  struct Lane {
    void* freed = nullptr;  // event
    size_t last = 0;        // of lane_copies_
  };
  std::array<Lane, kLanes> lanes_{};
  // The last copies, of all lanes.
  struct LaneCopies {
    void *begun = nullptr, *arrived = nullptr;  // events
    bool counts = false;                        // their time is not in lane_seconds_ yet
  };
  std::array<LaneCopies, 16> lane_copies_{};
  size_t next_copies_ = 0;  // of lane_copies_
  std::array<void*, kMarks> marks_ = {};
  std::shared_ptr<GraphClock> graph_clock_;  // graphs' too
  std::atomic<int> launch_error_{0};         // cudaError_t of the first launch that failed
  Mutex lost_mutex_;
  absl::Status lost_ ABSL_GUARDED_BY(lost_mutex_);  // the first call that failed
  Mutex lane_mutex_;                                // of `counts`, too
  double lane_seconds_ ABSL_GUARDED_BY(lane_mutex_) = 0;
  Mutex mutex_;  // sessions copy blocks while a step runs
  Buffer staging_;
  std::array<StagingPart, 4> parts_ ABSL_GUARDED_BY(mutex_);
  size_t part_ ABSL_GUARDED_BY(mutex_) = 0;        // the current one
  int64_t part_used_ ABSL_GUARDED_BY(mutex_) = 0;  // bytes of it
};

}  // namespace dsv4
