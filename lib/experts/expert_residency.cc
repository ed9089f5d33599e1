// SPDX-License-Identifier: Apache-2.0
#include "lib/experts/expert_residency.h"

#include <algorithm>

#include "lib/base/error.h"
#include "lib/base/status_macros.h"

namespace dsv4 {
namespace {

constexpr int64_t kSpareSlots = 8;
constexpr int64_t kLeastGuests = 8;
// The part of a device's slots for experts from disk, which stay in them while they are used.
constexpr int64_t kGuestShare = 4;
// The part of a device's slots through which experts are streamed.
constexpr int64_t kStreamShare = 8;

constexpr int64_t kMostCopies = 16;  // to measure reads: milliseconds over a slow link
constexpr int kLane = 0;             // of these copies

// Sets the address of a matrix that moved.
void RebaseMatrix(ExpertMatrix* matrix, const std::byte* to) {
  if (matrix->n == 0) return;  // the rank has no row of it
  const auto* data = reinterpret_cast<const uint8_t*>(to);
  const auto moved = [&](const auto* part) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(part);
    return reinterpret_cast<decltype(part)>(data + (bytes - matrix->data));
  };
  if (matrix->scale != nullptr) matrix->scale = moved(matrix->scale);
  if (matrix->f32_scale != nullptr) matrix->f32_scale = moved(matrix->f32_scale);
  matrix->data = data;
}

// Seconds to copy one of the slots [first, first + count) to the slots from `to` on.
absl::StatusOr<double> CopySeconds(const ExpertSlots& slots, int64_t first, int64_t count,
                                   int64_t to) {
  if (count <= 0 || slots.slot_bytes() == 0) return 0;
  std::vector<MemoryCopy> copies;
  for (int64_t i = 0; i < count; ++i) {
    copies.push_back({slots.Slot(to + i), slots.Slot(first + i), slots.slot_bytes()});
  }
  Device* const device = slots.device();
  constexpr int kRuns = 2;  // pages are mapped in the first
  double before = 0;
  for (int run = 0; run < kRuns; ++run) {
    before = device->LaneSeconds();
    DSV4_RETURN_IF_ERROR(device->StartLane(kLane, copies));
    DSV4_RETURN_IF_ERROR(device->AwaitLane(kLane));
    DSV4_RETURN_IF_ERROR(device->Synchronize());
  }
  return (device->LaneSeconds() - before) / static_cast<double>(count);
}

std::array<int64_t, 3> OffsetsOf(const std::array<int64_t, 3>& matrices) {
  return {0, matrices[0], matrices[0] + matrices[1]};
}

}  // namespace

int64_t RankBytes::Experts(int64_t all_blocks, int64_t count) const {
  if (blocks.empty()) return all_blocks * count * expert();
  int64_t bytes = 0;
  for (const std::array<int64_t, 3>& own : blocks) bytes += count * (own[0] + own[1] + own[2]);
  return bytes;
}

absl::StatusOr<ResidencyPlan> PlanResidency(const ExpertBudgets& budgets, int64_t blocks,
                                            int64_t experts, absl::Span<const RankBytes> ranks,
                                            bool integrated) {
  ResidencyPlan plan{.blocks = blocks, .experts = experts, .cpu_experts = budgets.cpu_experts};
  plan.on_device = plan.placed();
  int64_t most = 0, stage = 0, whole = 0;
  for (const RankBytes& rank : ranks) {
    plan.expert_bytes += rank.expert();
    const int64_t all = rank.Experts(blocks, experts - budgets.cpu_experts);
    whole += all;
    most = std::max(most, rank.other + all + (integrated ? rank.cpu : 0));  // of the largest rank
    stage += rank.stage;
    plan.cpu_bytes += rank.cpu;
  }
  // Host memory of an integrated device.
  const auto staged = [&](const RankBytes& rank) { return integrated ? rank.stage + rank.cpu : 0; };
  // Bytes of a device for a number of slots.
  const auto bytes_of = [&](int64_t slots) {
    int64_t bytes = 0;
    for (const RankBytes& rank : ranks) {
      bytes = std::max(bytes, rank.other + rank.counts + staged(rank) + slots * rank.expert());
    }
    return bytes;
  };
  // What a limit of the experts in host memory leaves of an integrated device for all weights.
  if (integrated && budgets.host_bytes != 0) {
    int64_t others = 0;
    for (const RankBytes& rank : ranks) others = std::max(others, rank.other + rank.counts);
    const int64_t limit = others + budgets.host_bytes;
    if (!budgets.limited() || limit < budgets.device_bytes) {
      ExpertBudgets budget = budgets;
      budget.device_bytes = limit;
      budget.host_bytes = 0;
      absl::StatusOr<ResidencyPlan> limited =
          PlanResidency(budget, blocks, experts, ranks, integrated);
      if (limited.ok()) return limited;
      return WithArgument(InvalidArgument("option host_weight_bytes = ", budgets.host_bytes,
                                          " on an integrated GPU leaves ", limit,
                                          " bytes for all weights: ", limited.status().message()),
                          "host_weight_bytes");
    }
  } else if (budgets.host_bytes != 0 && budgets.host_bytes < plan.cpu_bytes) {
    return WithArgument(
        InvalidArgument("option host_weight_bytes = ", budgets.host_bytes, "; at least ",
                        plan.cpu_bytes, " are needed for the ", plan.on_cpu(),
                        " experts that the CPU computes (cpu_experts = ", budgets.cpu_experts, ")"),
        "host_weight_bytes");
  }
  if (!budgets.limited() || budgets.device_bytes >= most) {
    if (plan.placed() > 0) plan.expert_bytes = whole / plan.placed();
    return plan;
  }
  const auto slots_in = [&](int64_t bytes) {
    int64_t slots = plan.placed() + kSpareSlots;
    for (const RankBytes& rank : ranks) {
      if (rank.expert() == 0) continue;
      slots = std::min(slots, (bytes - rank.other - rank.counts - staged(rank)) / rank.expert());
    }
    return slots;
  };
  // Without experts on disk. An integrated GPU has these in place of any on the host.
  const int64_t few = blocks + kSpareSlots;
  int64_t device_bytes = budgets.least ? bytes_of(few) : budgets.device_bytes;
  if (!integrated) {
    plan.spare = kSpareSlots;
    if (device_bytes < bytes_of(few)) {
      return WithArgument(
          InvalidArgument("option device_weight_bytes = ", device_bytes, "; at least ",
                          std::min(bytes_of(few), most),
                          " are needed on each device: all weights except routed experts, one "
                          "routed expert for each of ",
                          blocks, " layers, and room for ", kSpareSlots, " more to exchange them"),
          "device_weight_bytes");
    }
    const int64_t room = std::min(plan.placed(), slots_in(device_bytes) - plan.spare);
    const auto fits = [&](int64_t streams) {
      plan.streams = streams;
      plan.on_device = room - streams;
      plan.on_host = plan.placed() - plan.on_device;
      return budgets.host_bytes == 0 || budgets.host_bytes >= plan.host_bytes();
    };
    // Two lanes of equal size.
    const int64_t streams = std::min(kMostStreamSlots, room / kStreamShare) / 2 * 2;
    if (room < plan.placed() && fits(std::min(streams, room - blocks) / 2 * 2)) return plan;
    if (fits(0)) return plan;

    if (budgets.host_bytes < stage + plan.cpu_bytes) {
      return WithArgument(
          InvalidArgument("option host_weight_bytes = ", budgets.host_bytes, "; at least ",
                          stage + plan.cpu_bytes, " are needed to read experts from disk",
                          plan.cpu_bytes > 0 ? " and for the CPU's experts" : "", ", or ",
                          plan.host_bytes(),
                          " for all experts that do not fit "
                          "device_weight_bytes = ",
                          device_bytes),
          "host_weight_bytes");
    }
    plan.on_host = plan.expert_bytes == 0
                       ? 0
                       : (budgets.host_bytes - stage - plan.cpu_bytes) / plan.expert_bytes;
    plan.spare = plan.on_host > 0 ? kSpareSlots : 0;
  }
  plan.stage_bytes = stage;
  int64_t pack = 0;
  for (const RankBytes& rank : ranks) pack = std::max(pack, rank.pack);
  const int64_t least = bytes_of(blocks + plan.spare + kLeastGuests) + pack;
  if (budgets.least) device_bytes = least;
  if (device_bytes < least) {
    return WithArgument(
        InvalidArgument("option device_weight_bytes = ", device_bytes, "; at least ", least,
                        " are needed on each device with experts on disk: all weights except "
                        "routed experts, one routed expert for each of ",
                        blocks, " layers, and room for ", plan.spare + kLeastGuests, " more"),
        "device_weight_bytes");
  }
  const int64_t slots = slots_in(device_bytes - pack) - plan.spare;
  plan.guests = std::clamp(slots / kGuestShare, kLeastGuests, slots - blocks);
  if (plan.on_host > 0) {
    plan.streams =
        std::min({kMostStreamSlots, slots / kStreamShare, slots - blocks - plan.guests}) / 2 * 2;
  }
  plan.on_device = slots - plan.guests - plan.streams;
  plan.on_host = std::min(plan.on_host, plan.placed() - plan.on_device);
  plan.on_disk = plan.placed() - plan.on_device - plan.on_host;
  return plan;
}

ResidencyPlan PlanMappedExperts(int64_t host_bytes, int64_t blocks, int64_t experts,
                                int64_t expert_bytes) {
  ResidencyPlan plan{.blocks = blocks, .experts = experts, .expert_bytes = expert_bytes};
  plan.on_host = std::min(plan.all(), host_bytes / expert_bytes);
  plan.on_disk = plan.all() - plan.on_host;
  return plan;
}

int64_t MappedExpertRoom(int64_t available, int64_t other_bytes) {
  constexpr int64_t kParts = 8;  // one part is for caches, workspaces and evictable experts
  return std::max<int64_t>(available / kParts * (kParts - 1) - other_bytes, 0);
}

absl::Status ExpectHostRoom(const ResidencyPlan& plan, int64_t here, int64_t ranks,
                            std::optional<int64_t> available) {
  const int64_t bytes = plan.host_bytes() * here / ranks;
  if (!available || bytes <= *available) return absl::OkStatus();
  if (plan.cpu_bytes > *available) {
    return WithArgument(
        OutOfHostMemory("the machine has ", *available, " bytes of memory available; the ",
                        plan.on_cpu(), " experts of option cpu_experts = ", plan.cpu_experts,
                        " take ", plan.cpu_bytes),
        "cpu_experts");
  }
  return WithArgument(
      OutOfHostMemory("the machine has ", *available, " bytes of memory available; ", plan.on_host,
                      plan.on_device > 0 ? " experts beyond device_weight_bytes take "
                                         : " experts within host_weight_bytes take ",
                      bytes, ". With option host_weight_bytes below that, others stay on disk"),
      "host_weight_bytes");
}

int64_t ExpertSlots::DeviceBytes(const ResidencyPlan& plan, const RankBytes& bytes) {
  return plan.IsWhole() ? bytes.Experts(plan.blocks, plan.experts - plan.cpu_experts)
                        : plan.device_slots() * bytes.expert();
}

ExpertSlots::ExpertSlots(const ResidencyPlan& plan, const RankBytes& bytes, Device* device,
                         std::byte* device_memory, std::byte* host_memory)
    : plan_(plan),
      bytes_(bytes.expert()),
      offsets_(OffsetsOf(bytes.matrices)),
      device_(device),
      device_memory_(device_memory),
      host_memory_(host_memory),
      slot_of_(static_cast<size_t>(plan.all())) {
  for (size_t index = 0; index < slot_of_.size(); ++index) {
    const ExpertId id = IdOf(index);
    int64_t& slot = slot_of_[index];
    switch (plan.TierOf(id)) {
      case ExpertTier::kDevice:
        slot = plan.PlaceOf(id);
        break;
      case ExpertTier::kHost:
        slot = plan.PlaceOf(id) + plan.spare + plan.guests + plan.streams;
        break;
      case ExpertTier::kDisk:
        slot = kOnDisk;
        break;
      case ExpertTier::kCpu:
        slot = kNoSlot;
        break;
    }
  }
  if (!plan.IsWhole() || bytes.blocks.empty()) return;
  places_.resize(static_cast<size_t>(plan.device_slots()));
  int64_t end = 0;
  for (size_t index = 0; index < slot_of_.size(); ++index) {
    if (slot_of_[index] < 0) continue;
    const auto& matrices = bytes.blocks[static_cast<size_t>(IdOf(index).block)];
    places_[static_cast<size_t>(slot_of_[index])] = {end, OffsetsOf(matrices)};
    end += matrices[0] + matrices[1] + matrices[2];
  }
}

void ExpertSlots::Rebase(ExpertWeights* expert, int64_t slot) const {
  RebaseMatrix(&expert->w1, At(slot, 0));
  RebaseMatrix(&expert->w3, At(slot, 1));
  RebaseMatrix(&expert->w2, At(slot, 2));
}

absl::Status ExpertSlots::Point(ExpertId id, int64_t slot) const {
  const Block& own = block(id.block);
  ExpertWeights& expert = own.experts[id.expert];
  Rebase(&expert, slot);
  return device_->Upload(own.table + id.expert * static_cast<int64_t>(sizeof expert),
                         reinterpret_cast<const std::byte*>(&expert), sizeof expert);
}

absl::StatusOr<ExpertReadTimes> MeasureExpertReads(const ExpertSlots& slots) {
  const ResidencyPlan& plan = slots.plan();
  // No other copies run then.
  DSV4_RETURN_IF_ERROR(slots.device()->Synchronize());
  const int64_t empty = std::min(kMostCopies, plan.spare + plan.guests);
  ExpertReadTimes times;
  DSV4_ASSIGN_OR_RETURN(times.device,
                        CopySeconds(slots, 0, std::min(empty, plan.on_device), plan.on_device));
  times.device /= 2;  // a copy writes as much as it reads
  DSV4_ASSIGN_OR_RETURN(times.host, CopySeconds(slots, plan.device_slots(),
                                                std::min(empty, plan.on_host), plan.on_device));
  return times;
}

}  // namespace dsv4
