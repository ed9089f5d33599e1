// SPDX-License-Identifier: Apache-2.0
// Where the routed experts of an engine lie (docs/adr/0023-expert-residency.md): in slots of one
// size, some of a device's memory and the others of pinned host memory, which the device's kernels
// read through the same table. An expert's bytes are the same in both, so what is computed does not
// depend on it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace dsv4 {

// 0: no limit.
struct ExpertBudgets {
  int64_t device_bytes = 0;  // of all weights, on each device
  int64_t host_bytes = 0;    // of experts in host memory, of all devices together
  // For verification:
  bool least = false;    // device_bytes is the least that does
  uint64_t shuffle = 0;  // not 0: a seed by which experts move at random, as often as they can

  bool limited() const { return device_bytes != 0 || least; }
};

// A routed expert of a block: of a main layer, or behind them of one of the drafter's.
struct ExpertId {
  int32_t block = -1, expert = -1;
};

// Bytes of a rank's weights.
struct RankBytes {
  int64_t other = 0;                     // of all but routed experts
  int64_t counts = 0;                    // of their uses, where some are on the host
  std::array<int64_t, 3> matrices = {};  // of w1, w3 and w2 of an expert
  int64_t expert() const { return matrices[0] + matrices[1] + matrices[2]; }
};

// How many experts lie where; the same on all ranks, of which each has its part of every expert.
struct ResidencyPlan {
  int64_t blocks = 0, experts = 0;  // of a block
  int64_t on_device = 0, on_host = 0;
  int64_t spare = 0;         // slots of a device beside, by which experts move
  int64_t expert_bytes = 0;  // of all ranks together

  int64_t all() const { return blocks * experts; }
  int64_t host_bytes() const { return on_host * expert_bytes; }
  // Of one block, at first: as evenly as they go.
  int64_t OnDevice(int64_t block) const {
    return on_device / blocks + (block < on_device % blocks ? 1 : 0);
  }
};

// As many experts on the devices as the budgets have room for. InvalidArgument, with the least that
// would do, for less than one expert of each block, and where the host has no room for the others;
// it names the option.
absl::StatusOr<ResidencyPlan> PlanResidency(const ExpertBudgets& budgets, int64_t blocks,
                                            int64_t experts, absl::Span<const RankBytes> ranks);

// The experts of one rank: which slot each is in.
class ExpertSlots {
 public:
  ExpertSlots() = default;
  // `device` and `host`: memory for plan.on_device + plan.spare and for plan.on_host experts.
  ExpertSlots(const ResidencyPlan& plan, const RankBytes& bytes, std::byte* device,
              std::byte* host);

  // Where a matrix of the expert lies: 0 is w1, 1 w3, 2 w2.
  std::byte* At(ExpertId id, int matrix) const;
  bool OnDevice(ExpertId id) const { return SlotOf(id) < device_slots_; }

  // Slots are numbers: the device's from 0 on, then the host's.
  int64_t SlotOf(ExpertId id) const { return slot_of_[IndexOf(id)]; }
  std::byte* Slot(int64_t slot) const {
    return slot < device_slots_ ? device_ + slot * bytes_ : host_ + (slot - device_slots_) * bytes_;
  }
  int64_t slot_bytes() const { return bytes_; }
  // Has the expert in another slot; returns the one that it leaves.
  int64_t Move(ExpertId id, int64_t slot) { return std::exchange(slot_of_[IndexOf(id)], slot); }

 private:
  size_t IndexOf(ExpertId id) const { return static_cast<size_t>(id.block * experts_ + id.expert); }

  int64_t experts_ = 0, device_slots_ = 0, bytes_ = 0;
  std::array<int64_t, 3> offsets_ = {};
  std::byte *device_ = nullptr, *host_ = nullptr;
  std::vector<int64_t> slot_of_;
};

}  // namespace dsv4
