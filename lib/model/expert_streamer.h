// SPDX-License-Identifier: Apache-2.0
// Copies a rank's experts from host memory to the device for a pass of many rows, which chooses
// nearly all of them. The copy engine is faster over the link than kernels are, and copies each
// expert once. A block is computed in waves of consecutive experts (ExpertWave). There are two
// lanes of slots: while a wave is computed from one lane, the experts of the next wave are copied
// to the other. The next wave may belong to the next block. The host does not wait.
//
// If the rank computes the two halves of a block's experts separately (ExpertPart), each half has
// its own waves and copies only its matrices. Ranks exchange the products after the last wave of
// the first half. So ranks may need different numbers of waves for a half.
//
// Threads: the thread that runs the rank's passes; any for `bytes` and `seconds`.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/op/moe.h"
#include "lib/device/device.h"
#include "lib/model/expert_residency.h"
#include "lib/model/expert_table.h"
#include "lib/tensor/quant_format.h"

namespace dsv4 {

class ExpertStreamer {
 public:
  struct Parts {
    ResidencyPlan plan{};
    Device* device = nullptr;
    const ExpertSlots* slots = nullptr;
    std::vector<ExpertTable::Block> blocks{};
    int64_t main_blocks = 0;  // a pass runs these one after another
    // The parts that are computed of each block, one after another; a rank may have no rows of one.
    std::vector<ExpertPart> parts = {ExpertPart::kWhole};
    std::byte* memory = nullptr;  // on the device, of DeviceBytes
  };
  // Consecutive experts of a part of a block, parts[part].
  struct Wave {
    int32_t block = -1, first = 0, end = 0;
    size_t part = 0;
  };

  // Bytes of device memory in addition to the slots.
  static int64_t DeviceBytes(int64_t experts);
  explicit ExpertStreamer(Parts parts);

  // Called before the waves of a part of a block. REQUIRES: `part` is one of Parts::parts.
  absl::Status Begin(int32_t block, ExpertPart half);
  bool more() const { return more_; }
  // Begins the next wave of the part: kernels launched afterwards find its experts in table().
  // REQUIRES: more().
  absl::StatusOr<Wave> Next();
  // Called after the wave's kernels were launched.
  absl::Status Done();
  // [experts], on the device.
  const ExpertWeights* const* table() const { return table_; }

  int64_t bytes() const { return bytes_.load(); }  // copied, of all ranks together
  // Time of the copies that are complete.
  double seconds() const { return parts_.device->LaneSeconds() - seconds_before_; }

 private:
  Wave WaveFrom(const Wave& next) const;
  bool OnHost(ExpertId id) const { return parts_.slots->TierOf(id) == ExpertTier::kHost; }
  static size_t LaneOf(int64_t wave) { return static_cast<size_t>(wave % Device::kLanes); }
  // What a part needs of a slot.
  MemoryCopy CopyOf(int64_t from, int64_t to, ExpertPart part) const;
  // The number of a slot of a lane.
  int64_t StageSlot(size_t lane, int64_t index) const;
  absl::Status CopyAhead();

  const Parts parts_;
  const double seconds_before_;                   // the device's LaneSeconds before this object
  ExpertWeights* staged_ = nullptr;               // [slots of both lanes] on the device
  const ExpertWeights** table_ = nullptr;         // [experts] on the device
  std::vector<ExpertWeights> host_staged_;        // of a lane
  std::vector<const ExpertWeights*> host_table_;  // [experts]
  int64_t copied_ = 0, computed_ = 0;             // waves since the engine opened
  std::array<Wave, Device::kLanes> waves_{};      // of the lanes
  Wave next_{};                                   // to copy; block -1: none
  bool more_ = false;                             // the current part has another wave
  std::vector<MemoryCopy> copies_;
  std::atomic<int64_t> bytes_{0};
};

}  // namespace dsv4
