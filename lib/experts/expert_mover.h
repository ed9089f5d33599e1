// SPDX-License-Identifier: Apache-2.0
// Moves the experts that passes choose most into the memory of one rank's device, and others of
// their size out of it, concurrently with the passes. A stream of its own copies an expert to a
// free slot while passes read the old slot. Between two passes the expert's entry in the table
// changes; only then the old slot is overwritten. So no pass waits for a copy or reads an
// incomplete one.
//
// Threads: the thread that runs the rank's passes; any for `traffic`.
#pragma once

#include <atomic>
#include <cstdint>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "kernels/op/moe.h"
#include "lib/experts/expert_profile.h"
#include "lib/experts/expert_residency.h"

namespace dsv4 {

class ExpertMover {
 public:
  // - `shuffle`: as in ExpertBudgets.
  // - `counts`: [blocks, experts] on the device, incremented by the blocks' gates.
  // - `use` has the counts of earlier runs. `adds`: new calls are added to it and to traffic();
  //   false: others count them.
  // The arguments must outlive the mover.
  ExpertMover(uint64_t shuffle, ExpertSlots* slots, const ExpertCounts* counts, ExpertUse* use,
              bool adds);

  // Called between two passes, when the device is idle. Errors: DeviceLost.
  absl::Status BetweenPasses();

  ExpertTraffic traffic() const {
    return {.device_reads = device_reads_.load(),
            .host_reads = host_reads_.load(),
            .device_bytes = device_bytes_.load(),
            .host_bytes = host_bytes_.load(),
            .moved = moved_.load()};
  }

 private:
  // Two experts that change places. `up` is copied to `spare`, a device slot; the former slot of
  // `down` becomes the spare one.
  struct Swap {
    ExpertId up, down;
    int64_t spare = 0, host_slot = 0;
  };
  enum class Phase { kIdle, kUp, kDown };
  // The experts of one size, which change places with each other.
  struct Class {
    std::vector<size_t> order;   // their indices, by tier
    std::vector<int64_t> spare;  // slots
    // Of `order`: experts on the device before device_end, on the host before host_end, then the
    // others.
    std::vector<size_t>::iterator device_end, host_end;

    // The most pairs that change places at once.
    std::ptrdiff_t pairs() const;
  };

  absl::Status Count();
  void ChooseHottest(Class* own);
  void ChooseAny(Class* own);
  absl::Status BeginUp();
  absl::Status BeginDown();
  absl::Status End();
  // Makes kernels read the expert in the slot. Returns its former slot.
  absl::StatusOr<int64_t> Publish(ExpertId id, int64_t slot);
  void OrderByTier(Class* own) const;
  Class& ClassOf(ExpertId id) {
    return classes_[static_cast<size_t>(slots_->plan().ClassOf(id.block))];
  }

  ExpertSlots* const slots_;
  Device* const device_;
  const ExpertCounts* const device_counts_;
  ExpertUse* const use_;                       // receives the counts; null: none
  std::vector<ExpertCounts> counts_, before_;  // [blocks * experts]
  std::vector<float> heat_;                    // of the same: calls lately
  std::vector<Class> classes_;
  std::vector<Swap> swaps_;
  std::vector<MemoryCopy> copies_;
  Phase phase_ = Phase::kIdle;
  int passes_ = 0;          // since the last choice
  int cooling_passes_ = 0;  // since heat was lowered
  const bool shuffles_;
  bool chooses_at_once_;
  std::mt19937_64 random_;
  std::atomic<int64_t> device_reads_{0}, host_reads_{0}, device_bytes_{0}, host_bytes_{0};
  std::atomic<int64_t> moved_{0};
};

}  // namespace dsv4
