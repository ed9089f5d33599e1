// SPDX-License-Identifier: Apache-2.0
// For one rank: brings the experts that passes choose most into its device's memory and others out
// of it, concurrently with the passes. An expert is copied to a free slot by a stream of its own
// while passes read the old one; between two passes its entry in the table changes, and only then
// is the old slot written. So no pass ever waits for a copy or reads one that is not done. Used by
// the thread that runs the rank's passes; `traffic` from any.
#pragma once

#include <atomic>
#include <cstdint>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "kernels/op/moe.h"
#include "lib/device/device.h"
#include "lib/model/expert_profile.h"
#include "lib/model/expert_residency.h"
#include "lib/model/expert_table.h"

namespace dsv4 {

// Since the engine opened, as of the last time that the device's counts were read. Ranks count
// alike; bytes are of all of them together.
struct ExpertTraffic {
  int64_t device_reads = 0, host_reads = 0;     // of an expert's weights, by where they lay
  double device_seconds = 0, host_seconds = 0;  // estimates of these: ExpertReadTimes
  int64_t moved = 0;                            // experts brought to the device
  int64_t streamed_bytes = 0;                   // that the copy engine brought for long prompts
  double stream_seconds = 0;                    // that it took
  // Experts read from disk, the bytes, and the time that passes waited for them.
  int64_t disk_reads = 0;
  int64_t prefetched = 0;  // of disk_reads, those that token ids told before the layers
  int64_t disk_bytes = 0;
  double disk_seconds = 0;
  // Experts that the CPU computed for calls, and the time that it took.
  int64_t cpu_reads = 0;
  double cpu_seconds = 0;
  ExpertTraffic operator+(const ExpertTraffic& other) const {
    return {device_reads + other.device_reads,
            host_reads + other.host_reads,
            device_seconds + other.device_seconds,
            host_seconds + other.host_seconds,
            moved + other.moved,
            streamed_bytes + other.streamed_bytes,
            stream_seconds + other.stream_seconds,
            disk_reads + other.disk_reads,
            prefetched + other.prefetched,
            disk_bytes + other.disk_bytes,
            disk_seconds + other.disk_seconds,
            cpu_reads + other.cpu_reads,
            cpu_seconds + other.cpu_seconds};
  }
};

class ExpertMover {
 public:
  // `counts`: [blocks, plan.experts] on the device, which the blocks' gates count in. What is
  // pointed to must outlive the mover.
  // `use` tells what was hot before; `adds`: it is told of calls.
  ExpertMover(const ExpertBudgets& budgets, const ResidencyPlan& plan, Device* device,
              ExpertSlots* slots, ExpertTable table, const ExpertCounts* counts, ExpertUse* use,
              bool adds);

  // Between two passes, when the device has nothing left to do. Errors: DeviceLost.
  absl::Status BetweenPasses();

  ExpertTraffic traffic() const {
    return {.device_reads = device_reads_.load(),
            .host_reads = host_reads_.load(),
            .moved = moved_.load()};
  }

 private:
  // Two experts that change places: `up` by `spare`, a slot of the device, which that of `down`
  // replaces.
  struct Swap {
    ExpertId up, down;
    int64_t spare = 0, host_slot = 0;
  };
  enum class Phase { kIdle, kUp, kDown };

  absl::Status Count();
  void ChooseHottest();
  void ChooseAny();
  absl::Status BeginUp();
  absl::Status BeginDown();
  absl::Status End();
  // Has kernels read the expert in the slot; returns its former one.
  absl::StatusOr<int64_t> Publish(ExpertId id, int64_t slot);
  // Has [device_end, host_end) of order_ be the experts on the host, and those before on the
  // device.
  void OrderByTier();
  // So many at most change places.
  std::ptrdiff_t Pairs() const;

  const ResidencyPlan plan_;
  Device* const device_;
  ExpertSlots* const slots_;
  const ExpertTable table_;
  const ExpertCounts* const device_counts_;
  ExpertUse* const use_;                       // null: told of nothing
  std::vector<ExpertCounts> counts_, before_;  // [blocks * experts]
  std::vector<float> heat_;                    // of the same: calls lately
  std::vector<size_t> order_;                  // scratch: experts by tier
  std::vector<size_t>::iterator device_end_, host_end_;
  std::vector<int64_t> spare_;  // slots
  std::vector<Swap> swaps_;
  std::vector<MemoryCopy> copies_;
  Phase phase_ = Phase::kIdle;
  int passes_ = 0;          // since the last choice
  int cooling_passes_ = 0;  // since heat was lowered
  const bool shuffles_;
  bool chooses_at_once_;
  std::mt19937_64 random_;
  std::atomic<int64_t> device_reads_{0}, host_reads_{0}, moved_{0};
};

}  // namespace dsv4
