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
// Threads: the thread that runs the rank's passes; any for `traffic`.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/op/moe.h"
#include "lib/device/device.h"
#include "lib/experts/expert_residency.h"
#include "lib/tensor/quant_format.h"

namespace dsv4 {

class ExpertStreamer {
 public:
  struct Parts {
    const ExpertSlots* slots = nullptr;
    int64_t main_blocks = 0;  // a pass runs these one after another
    // The parts that are computed of each block, one after another; a rank may have no rows of one.
    std::vector<ExpertPart> parts = {ExpertPart::kWhole};
    std::byte* memory = nullptr;  // on the device, of DeviceBytes
  };
  // Bytes of device memory in addition to the slots.
  static int64_t DeviceBytes(int64_t experts);
  explicit ExpertStreamer(Parts parts);

  // Computes `part` of the operator, one of Parts::parts, in waves: calls `launch` for each when
  // its experts are on the device or on their way there.
  absl::Status Run(int32_t block, ExpertFfnParams part,
                   absl::FunctionRef<absl::Status(const ExpertFfnParams&)> launch);

  // The bytes of all ranks together, and the time of the copies that are complete.
  ExpertTraffic traffic() const {
    return {.streamed_bytes = bytes_.load(),
            .stream_seconds = device_->LaneSeconds() - seconds_before_};
  }

 private:
  // Consecutive experts of a part of a block, parts[part].
  struct Wave {
    int32_t block = -1, first = 0, end = 0;
    size_t part = 0;
  };

  // Called before the waves of a part of a block.
  absl::Status Begin(int32_t block, ExpertPart half);
  // Begins the next wave of the part: kernels launched afterwards find its experts in table_.
  absl::StatusOr<Wave> Next();
  // Called after the wave's kernels were launched.
  absl::Status Done();
  Wave WaveFrom(const Wave& next) const;
  bool OnHost(ExpertId id) const { return parts_.slots->TierOf(id) == ExpertTier::kHost; }
  static size_t LaneOf(int64_t wave) { return static_cast<size_t>(wave % Device::kLanes); }
  // What a part needs of an expert, to the same bytes of a place that begins at `to`.
  MemoryCopy CopyOf(ExpertId id, std::byte* to, ExpertPart part) const;
  // A place in a lane for an expert of the block: a lane has more of smaller experts.
  std::byte* Staged(size_t lane, int64_t block, int64_t index) const;
  int64_t RoomFor(int64_t block) const;  // in a lane
  absl::Status CopyAhead();

  const Parts parts_;
  const ResidencyPlan& plan_;
  Device* const device_;
  const double seconds_before_;                   // the device's LaneSeconds before this object
  ExpertWeights* staged_ = nullptr;               // [lanes, kLaneExperts] on the device
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
