// SPDX-License-Identifier: Apache-2.0
// Where the routed experts of an engine lie (docs/adr/0023-expert-residency.md): in slots of one
// size, some of a device's memory and the others of pinned host memory, which the device's kernels
// read through the same table; or on disk, in the checkpoint's files, from which a pass brings
// those that it needs to slots of the device (lib/model/expert_fetcher.h). An expert's bytes are
// the same in any slot, so what is computed does not depend on it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace dsv4 {

// 0: no limit.
struct ExpertBudgets {
  int64_t device_bytes = 0;  // of all weights, on each device
  int64_t host_bytes = 0;    // of experts in host memory, of all devices together
  // Of each block, the experts that the CPU computes: its last ones. Not a limit: it changes bits.
  int64_t cpu_experts = 0;
  // For verification:
  bool least = false;        // device_bytes is the least that does
  uint64_t shuffle = 0;      // not 0: a seed by which experts move at random, as often as they can
  bool plain_reads = false;  // from disk, see DirectReader

  bool limited() const { return device_bytes != 0 || least; }  // those of a device
};

// A routed expert of a block: of a main layer, or behind them of one of the drafter's.
struct ExpertId {
  int32_t block = -1, expert = -1;
};

// Bytes of a rank's weights.
struct RankBytes {
  int64_t other = 0;                     // of all but routed experts
  int64_t counts = 0;                    // of their uses and to stream, where some are on the host
  int64_t stage = 0;                     // of host memory, for reads from disk,
  int64_t pack = 0;                      // and to pack what they bring
  int64_t cpu = 0;                       // of host memory, for all experts that the CPU computes
  std::array<int64_t, 3> matrices = {};  // of w1, w3 and w2 of an expert
  int64_t expert() const { return matrices[0] + matrices[1] + matrices[2]; }
};

// Slots of both lanes of a stream (lib/model/expert_streamer.h), at most.
inline constexpr int64_t kMostStreamSlots = 64;

// kCpu: in host memory, where only the CPU reads it.
enum class ExpertTier : int32_t { kDevice, kHost, kDisk, kCpu };

// How many experts lie where; the same on all ranks, of which each has its part of every expert.
struct ResidencyPlan {
  int64_t blocks = 0, experts = 0;  // of a block
  int64_t on_device = 0, on_host = 0, on_disk = 0;
  int64_t spare = 0;         // further slots of a device, by which experts move
  int64_t guests = 0;        // and those that experts on disk come to
  int64_t streams = 0;       // and those that passes of many rows read experts through
  int64_t expert_bytes = 0;  // of all ranks together
  int64_t stage_bytes = 0;   // of host memory, for reads from disk, of all ranks together
  int64_t cpu_experts = 0;   // of each block, its last ones: those that the CPU computes
  int64_t cpu_bytes = 0;     // of host memory, which these take
  // [blocks * experts], of a profile (lib/model/expert_profile.h); null: none
  std::shared_ptr<const std::vector<int64_t>> places{};

  int64_t all() const { return blocks * experts; }
  int64_t on_cpu() const { return blocks * cpu_experts; }
  int64_t cpu_expert_bytes() const { return cpu_experts == 0 ? 0 : cpu_bytes / on_cpu(); }
  int64_t placed() const { return all() - on_cpu(); }  // those that devices compute
  bool IsCpus(ExpertId id) const { return id.expert >= experts - cpu_experts; }
  int64_t device_slots() const { return on_device + spare + guests + streams; }
  int64_t guest_slot() const { return on_device + spare; }  // the first of them
  int64_t stream_slot() const { return guest_slot() + guests; }
  // Where an expert is at first.
  ExpertTier TierOf(ExpertId id) const {
    if (IsCpus(id)) return ExpertTier::kCpu;
    const int64_t place = PlaceOf(id);
    if (place < on_device) return ExpertTier::kDevice;
    return place < on_device + on_host ? ExpertTier::kHost : ExpertTier::kDisk;
  }
  // Among all, in the order in which they go to the tiers: by `places`, else the first of each
  // block, then the second. Those of the CPU come last.
  int64_t PlaceOf(ExpertId id) const {
    if (places != nullptr) return (*places)[static_cast<size_t>(id.block * experts + id.expert)];
    return id.expert * blocks + id.block;
  }
  int64_t host_bytes() const { return on_host * expert_bytes + stage_bytes + cpu_bytes; }
  // Of one block, at first, without `places`: as evenly as they go.
  int64_t OnDevice(int64_t block) const { return Of(on_device, block); }
  int64_t OnDisk(int64_t block) const {
    return experts - cpu_experts - Of(on_device + on_host, block);
  }

 private:
  int64_t Of(int64_t count, int64_t block) const {
    return count / blocks + (block < count % blocks ? 1 : 0);
  }
};

// As many experts on the devices as the budgets have room for, then on the host. `integrated`: the
// devices' memory is the host's, so that experts lie there once, within device_bytes, as does what
// reads of the others take. InvalidArgument, with the least that would do, for less than one expert
// of each block on a device, for a budget of the host that has no room for what reads from disk
// take, and for any of one that is counted already; it names the option. Experts of the CPU take
// their part of the host's budget, or of an integrated device's, first.
absl::StatusOr<ResidencyPlan> PlanResidency(const ExpertBudgets& budgets, int64_t blocks,
                                            int64_t experts, absl::Span<const RankBytes> ranks,
                                            bool integrated = false);

// The same where experts are mapped files' and host memory is all there is: as many of them stay in
// memory as the budget has room for. `expert_bytes`: as stored, of the largest.
ResidencyPlan PlanMappedExperts(int64_t host_bytes, int64_t blocks, int64_t experts,
                                int64_t expert_bytes);
// The budget for mapped experts on a machine that has `available` bytes of memory left, of which
// all other weights take `other_bytes`.
int64_t MappedExpertRoom(int64_t available, int64_t other_bytes);

// OutOfHostMemory, with the option that helps, where the machine has `available` bytes and the plan
// takes more for `here` of the ranks. Pinned memory is never swapped out: a system that has too
// little kills processes.
absl::Status ExpectHostRoom(const ResidencyPlan& plan, int64_t here, int64_t ranks,
                            std::optional<int64_t> available);

// The experts of one rank: which slot each is in.
class ExpertSlots {
 public:
  ExpertSlots() = default;
  // `device` and `host`: memory for plan.device_slots() and for plan.on_host experts.
  ExpertSlots(const ResidencyPlan& plan, const RankBytes& bytes, std::byte* device,
              std::byte* host);

  ExpertTier TierOf(ExpertId id) const {
    const int64_t slot = SlotOf(id);
    if (slot < 0) return slot == kNoSlot ? ExpertTier::kCpu : ExpertTier::kDisk;
    return slot < device_slots_ ? ExpertTier::kDevice : ExpertTier::kHost;
  }
  bool OnDevice(ExpertId id) const { return TierOf(id) == ExpertTier::kDevice; }

  // Slots are numbers: the device's from 0 on, then the host's. -1: on disk; -2: the CPU's.
  int64_t SlotOf(ExpertId id) const { return slot_of_[IndexOf(id)]; }
  std::byte* Slot(int64_t slot) const {
    return slot < device_slots_ ? device_ + slot * bytes_ : host_ + (slot - device_slots_) * bytes_;
  }
  // Where a matrix of a slot's expert lies: 0 is w1, 1 w3, 2 w2.
  std::byte* At(int64_t slot, int matrix) const {
    return Slot(slot) + offsets_[static_cast<size_t>(matrix)];
  }
  int64_t slot_bytes() const { return bytes_; }
  // Has the expert in another slot; returns the one that it leaves.
  int64_t Move(ExpertId id, int64_t slot) { return std::exchange(slot_of_[IndexOf(id)], slot); }

  size_t IndexOf(ExpertId id) const { return static_cast<size_t>(id.block * experts_ + id.expert); }
  ExpertId IdOf(size_t index) const {
    const auto experts = static_cast<size_t>(experts_);
    return {static_cast<int32_t>(index / experts), static_cast<int32_t>(index % experts)};
  }

 private:
  static constexpr int64_t kOnDisk = -1, kNoSlot = -2;
  int64_t experts_ = 0, device_slots_ = 0, bytes_ = 0;
  std::array<int64_t, 3> offsets_ = {};
  std::byte *device_ = nullptr, *host_ = nullptr;
  std::vector<int64_t> slot_of_;
};

}  // namespace dsv4
