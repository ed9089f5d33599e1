// SPDX-License-Identifier: Apache-2.0
// The places of an engine's routed experts (docs/adr/0023-expert-residency.md):
// - slots in device memory and in pinned host memory; the device's kernels read both through the
//   same table. Slots have the sizes of experts: an expert moves among those of its size;
// - on disk, in the checkpoint's files; a pass copies the experts that it needs to device slots
//   (lib/experts/expert_fetcher.h).
// An expert has the same bytes in any slot, so results do not depend on its place.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/device/device.h"
#include "lib/tensor/quant_format.h"

namespace dsv4 {

// 0: no limit.
struct ExpertBudgets {
  int64_t device_bytes = 0;  // of all weights, on each device
  int64_t host_bytes = 0;    // of experts in host memory, of all devices together
  // The most bytes of a block of host memory for experts, where a system pins none as large as they
  // are together.
  int64_t host_piece = 0;
  // For verification:
  bool least = false;        // device_bytes is the smallest possible
  uint64_t shuffle = 0;      // not 0: experts move at random with this seed, as often as possible
  bool plain_reads = false;  // from disk, see DirectReader

  bool limited() const { return device_bytes != 0 || least; }  // those of a device
};

// A routed expert of a block. Blocks are the main layers, then the drafter's.
struct ExpertId {
  int32_t block = -1, expert = -1;
};

// Bytes of a rank's weights.
struct RankBytes {
  int64_t other = 0;                     // of all weights except routed experts
  int64_t counts = 0;                    // counters and streaming, if experts lie on the host
  int64_t stage = 0;                     // host memory for reads from disk
  int64_t pack = 0;                      // to pack the experts that were read
  std::array<int64_t, 3> matrices = {};  // of w1, w3 and w2 of the largest expert
  // Bytes of w1, w3 and w2 of an expert of each block; empty: all blocks are alike.
  std::vector<std::array<int64_t, 3>> blocks{};
  // Those of a block.
  const std::array<int64_t, 3>& Matrices(int64_t block) const {
    return blocks.empty() ? matrices : blocks[static_cast<size_t>(block)];
  }
  int64_t Expert(int64_t block) const {
    const std::array<int64_t, 3>& own = Matrices(block);
    return own[0] + own[1] + own[2];
  }
};

// Bytes of experts in the order in which tiers are filled: one of each block, then the next one of
// each. The experts of a block have one size.
class BytesByPlace {
 public:
  explicit BytesByPlace(absl::Span<const int64_t> expert_of_block);
  int64_t First(int64_t count) const;    // of the first `count` experts
  int64_t CountIn(int64_t bytes) const;  // the most first experts that take no more
  int64_t one_of_each() const { return ends_.back(); }

 private:
  std::vector<int64_t> ends_ = {0};  // of one expert of each of the first blocks
};

// Most experts in both lanes of an ExpertStreamer.
inline constexpr int64_t kMostStreamSlots = 64;
// Most experts that an ExpertFetcher reads for a wave, all of one block: enough concurrent reads to
// keep a disk busy.
inline constexpr int64_t kWaveExperts = 4;

enum class ExpertTier : int32_t { kDevice, kHost, kDisk };

// Slots of one size, for the experts of some blocks.
struct SlotClass {
  int64_t blocks = 0;             // number of blocks
  int64_t bytes = 0;              // of a slot, of all ranks together
  int64_t spare = 0, guests = 0;  // of ResidencyPlan's
};

// The number of experts in each place. The same on all ranks; each rank has a part of every expert.
struct ResidencyPlan {
  int64_t blocks = 0, experts = 0;  // of a block
  int64_t on_device = 0, on_host = 0, on_disk = 0;
  int64_t spare = 0;             // further device slots, to move experts
  int64_t guests = 0;            // further device slots, for experts that are read from disk
  int64_t streams = 0;           // further device slots, of the largest experts' size, for experts
                                 // streamed in passes of many rows
  int64_t expert_bytes = 0;      // of all ranks together; in the mean, if experts differ
  int64_t stage_bytes = 0;       // of host memory, for reads from disk, of all ranks together
  int64_t host_piece = 0;        // ExpertBudgets::host_piece
  int64_t least_host_bytes = 0;  // stage_bytes of a plan with experts on disk
  std::vector<SlotClass> classes{};  // empty: all experts have one size
  std::vector<int32_t> class_of{};   // [blocks]; empty as well
  // [blocks * experts], of a profile (lib/experts/expert_profile.h); null: none
  std::shared_ptr<const std::vector<int64_t>> places{};

  int64_t all() const { return blocks * experts; }
  int64_t device_slots() const { return on_device + spare + guests + streams; }
  // Whether all experts are on devices and stay where they are.
  bool IsWhole() const { return on_device == all() && device_slots() == on_device; }

  // Classes are numbered; without `classes` there is one, 0.
  int32_t class_count() const { return classes.empty() ? 1 : static_cast<int32_t>(classes.size()); }
  int32_t ClassOf(int64_t block) const {
    return class_of.empty() ? 0 : class_of[static_cast<size_t>(block)];
  }
  SlotClass ClassAt(int32_t index) const {
    return classes.empty() ? SlotClass{blocks, expert_bytes, spare, guests}
                           : classes[static_cast<size_t>(index)];
  }
  // The first block of a class.
  int64_t BlockOf(int32_t of_class) const {
    return class_of.empty()
               ? 0
               : std::find(class_of.begin(), class_of.end(), of_class) - class_of.begin();
  }
  // The first of a class's spare slots and guests.
  int64_t spare_slot(int32_t of_class) const;
  int64_t guest_slot(int32_t of_class) const;
  int64_t stream_slot() const { return on_device + spare + guests; }

  // Bytes of all ranks together.
  int64_t ExpertBytes(int64_t block) const { return ClassAt(ClassOf(block)).bytes; }
  int64_t largest_bytes() const;
  int64_t guest_bytes() const;
  int64_t device_bytes() const;  // all slots in device memory
  int64_t host_expert_bytes() const { return BytesOf(on_device, on_host); }
  int64_t disk_bytes() const { return BytesOf(on_device + on_host, on_disk); }
  int64_t all_bytes() const { return BytesOf(0, all()); }
  int64_t host_bytes() const { return host_expert_bytes() + stage_bytes; }

  // The first place of an expert.
  ExpertTier TierOf(ExpertId id) const {
    const int64_t place = PlaceOf(id);
    if (place < on_device) return ExpertTier::kDevice;
    return place < on_device + on_host ? ExpertTier::kHost : ExpertTier::kDisk;
  }
  // The expert's rank in the order in which tiers are filled: by `places`, else the first expert of
  // each block, then the second, and so on. With `places`, too, the expert has the class of the one
  // that would be there.
  int64_t PlaceOf(ExpertId id) const {
    if (places != nullptr) return (*places)[static_cast<size_t>(id.block * experts + id.expert)];
    return id.expert * blocks + id.block;
  }
  // Experts of one block at first, without `places`: spread evenly over the blocks.
  int64_t OnDevice(int64_t block) const { return Of(on_device, block); }
  int64_t OnDisk(int64_t block) const { return experts - Of(on_device + on_host, block); }

 private:
  int64_t Of(int64_t count, int64_t block) const {
    return count / blocks + (block < count % blocks ? 1 : 0);
  }
  // Of experts in consecutive places.
  int64_t BytesOf(int64_t first, int64_t count) const;
};

// Places as many experts on the devices as the budgets allow, then on the host. Each class of slots
// gets of every tier its share of the experts.
// `integrated`: device memory is host memory. Experts then lie there once; device_bytes limits them
// together with all other weights and the memory for reads from disk, host_bytes without the other
// weights.
// Errors: InvalidArgument, naming the option and the smallest possible value,
// - for less than one expert of each block on a device;
// - for a host budget without room for reads from disk.
absl::StatusOr<ResidencyPlan> PlanResidency(const ExpertBudgets& budgets, int64_t blocks,
                                            int64_t experts, absl::Span<const RankBytes> ranks,
                                            bool integrated = false);

// PlanResidency for experts in mapped files without device memory: as many stay in memory as the
// budget allows. `expert_of_block`: stored bytes of the largest expert of each block.
ResidencyPlan PlanMappedExperts(int64_t host_bytes, int64_t experts,
                                absl::Span<const int64_t> expert_of_block);
// The budget for mapped experts on a machine with `available` bytes of free memory. All other
// weights take `other_bytes` of it.
int64_t MappedExpertRoom(int64_t available, int64_t other_bytes);

// OutOfHostMemory, naming the option that helps, if `here` of the plan's ranks need more than
// `available` bytes. Pinned memory is never swapped out: a system that runs out kills processes.
absl::Status ExpectHostRoom(const ResidencyPlan& plan, int64_t here, int64_t ranks,
                            std::optional<int64_t> available);

// Counts since the engine opened, as of the last read of the device's counters. All ranks have
// equal counts; bytes are the sum over ranks.
struct ExpertTraffic {
  int64_t device_reads = 0, host_reads = 0;     // reads of an expert's weights, by place
  int64_t device_bytes = 0, host_bytes = 0;     // of these reads
  double device_seconds = 0, host_seconds = 0;  // their estimated time: ExpertReadTimes
  int64_t moved = 0;                            // experts moved to the device
  int64_t streamed_bytes = 0;                   // copied by the copy engine for long prompts
  double stream_seconds = 0;                    // time of these copies
  // Experts read from disk, their bytes, and the time that passes waited for them.
  int64_t disk_reads = 0;
  int64_t prefetched = 0;  // disk_reads before the layers, of experts known from token ids
  int64_t disk_bytes = 0;
  double disk_seconds = 0;
  ExpertTraffic operator+(const ExpertTraffic& other) const {
    return {device_reads + other.device_reads,
            host_reads + other.host_reads,
            device_bytes + other.device_bytes,
            host_bytes + other.host_bytes,
            device_seconds + other.device_seconds,
            host_seconds + other.host_seconds,
            moved + other.moved,
            streamed_bytes + other.streamed_bytes,
            stream_seconds + other.stream_seconds,
            disk_reads + other.disk_reads,
            prefetched + other.prefetched,
            disk_bytes + other.disk_bytes,
            disk_seconds + other.disk_seconds};
  }
};

// The slots of one rank's experts, and the tables through which kernels reach them.
class ExpertSlots {
 public:
  // A block's experts: the host's views, and the table that kernels read.
  struct Block {
    ExpertWeights* experts = nullptr;
    std::byte* table = nullptr;
  };

  ExpertSlots() = default;
  // Bytes of a rank's slots.
  static int64_t DeviceBytes(const ResidencyPlan& plan, const RankBytes& bytes);
  static int64_t HostBytes(const ResidencyPlan& plan, const RankBytes& bytes);

  // The blocks of a rank's host memory, of whole slots: one, or several of
  // ResidencyPlan::host_piece bytes at most, or of one slot that is larger.
  static std::vector<int64_t> HostPieces(const ResidencyPlan& plan, const RankBytes& bytes);

  // `device_memory` and `host_memory`: of DeviceBytes and HostPieces.
  ExpertSlots(const ResidencyPlan& plan, const RankBytes& bytes, Device* device,
              std::byte* device_memory, absl::Span<std::byte* const> host_memory);
  // Sets the tables of all blocks, which must outlive the slots.
  void set_blocks(std::vector<Block> blocks) { blocks_ = std::move(blocks); }
  const Block& block(int32_t block) const { return blocks_[static_cast<size_t>(block)]; }

  const ResidencyPlan& plan() const { return plan_; }
  Device* device() const { return device_; }

  ExpertTier TierOf(ExpertId id) const {
    const int64_t slot = SlotOf(id);
    if (slot < 0) return ExpertTier::kDisk;
    return slot < plan_.device_slots() ? ExpertTier::kDevice : ExpertTier::kHost;
  }
  bool OnDevice(ExpertId id) const { return TierOf(id) == ExpertTier::kDevice; }

  // Device slots are numbered from 0, host slots follow. -1: on disk.
  int64_t SlotOf(ExpertId id) const { return slot_of_[IndexOf(id)]; }
  std::byte* Slot(int64_t slot) const { return starts_[static_cast<size_t>(slot)]; }
  // Bytes of an expert of the block, in any of the slots of its class.
  int64_t ExpertBytes(int64_t block) const { return EndsOf(block)[2]; }
  int64_t largest() const { return largest_; }  // of all experts
  int64_t smallest() const { return smallest_; }
  // Where a matrix of the block's experts begins in a slot: 0 is w1, 1 w3, 2 w2.
  int64_t Offset(int64_t block, int matrix) const {
    return matrix == 0 ? 0 : EndsOf(block)[static_cast<size_t>(matrix) - 1];
  }
  std::byte* At(int64_t block, int64_t slot, int matrix) const {
    return Slot(slot) + Offset(block, matrix);
  }
  // Assigns another slot to the expert and returns its former one.
  int64_t Move(ExpertId id, int64_t slot) { return std::exchange(slot_of_[IndexOf(id)], slot); }

  // Points the views of an expert of the block to memory of a slot.
  void Rebase(int64_t block, std::byte* start, ExpertWeights* expert) const;
  // Makes kernels that are launched afterwards read the expert in the slot. Errors: DeviceLost.
  absl::Status Point(ExpertId id, int64_t slot) const;

  size_t IndexOf(ExpertId id) const {
    return static_cast<size_t>(id.block * plan_.experts + id.expert);
  }
  ExpertId IdOf(size_t index) const {
    const auto experts = static_cast<size_t>(plan_.experts);
    return {static_cast<int32_t>(index / experts), static_cast<int32_t>(index % experts)};
  }

 private:
  static constexpr int64_t kOnDisk = -1;
  // Ends of w1, w3 and w2 in a slot.
  const std::array<int64_t, 3>& EndsOf(int64_t block) const {
    return ends_[static_cast<size_t>(block)];
  }

  ResidencyPlan plan_;
  Device* device_ = nullptr;
  std::vector<std::array<int64_t, 3>> ends_;  // [blocks]
  int64_t largest_ = 0, smallest_ = 0;
  std::vector<std::byte*> starts_;  // of all slots
  std::vector<int64_t> slot_of_;
  std::vector<Block> blocks_;
};

// Seconds to read a byte of a rank's experts from each memory, at the rate of copies; 0 if no
// expert lies there. Kernels read experts from device and host memory concurrently and along with
// other data, so these reads cannot be timed alone. Copies of experts can, before the first pass.
struct ExpertReadTimes {
  double device = 0, host = 0;
};

// Times copies to slots that hold no expert yet, and waits for the device. REQUIRES: the device's
// lanes are unused; the plan has spare slots or guests. Errors: DeviceLost.
absl::StatusOr<ExpertReadTimes> MeasureExpertReads(const ExpertSlots& slots);

}  // namespace dsv4
