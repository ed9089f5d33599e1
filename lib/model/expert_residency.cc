// SPDX-License-Identifier: Apache-2.0
#include "lib/model/expert_residency.h"

#include <algorithm>

#include "lib/base/error.h"

namespace dsv4 {
namespace {

constexpr int64_t kSpareSlots = 8;

}  // namespace

absl::StatusOr<ResidencyPlan> PlanResidency(const ExpertBudgets& budgets, int64_t blocks,
                                            int64_t experts, absl::Span<const RankBytes> ranks) {
  ResidencyPlan plan{.blocks = blocks, .experts = experts, .on_device = blocks * experts};
  int64_t most = 0, least = 0;  // bytes of the largest rank, with all experts and with few
  for (const RankBytes& rank : ranks) {
    plan.expert_bytes += rank.expert();
    most = std::max(most, rank.other + plan.all() * rank.expert());
    least = std::max(least, rank.other + rank.counts + (blocks + kSpareSlots) * rank.expert());
  }
  const int64_t device_bytes = budgets.least ? least : budgets.device_bytes;
  if (device_bytes == 0 || device_bytes >= most) return plan;
  if (device_bytes < least) {
    return WithArgument(
        InvalidArgument("option device_weight_bytes = ", device_bytes, ": a device needs at least ",
                        std::min(least, most),
                        ", which are all weights but routed experts, one of these for each of ",
                        blocks, " layers and ", kSpareSlots, " to exchange them by"),
        "device_weight_bytes");
  }
  plan.spare = kSpareSlots;
  for (const RankBytes& rank : ranks) {
    if (rank.expert() == 0) continue;
    const int64_t slots = (device_bytes - rank.other - rank.counts) / rank.expert();
    plan.on_device = std::min(plan.on_device, slots - plan.spare);
  }
  plan.on_host = plan.all() - plan.on_device;
  if (budgets.host_bytes != 0 && budgets.host_bytes < plan.host_bytes()) {
    return WithArgument(
        InvalidArgument("option host_weight_bytes = ", budgets.host_bytes, ": ", plan.on_host,
                        " experts of ", plan.expert_bytes,
                        " bytes have no room in device_weight_bytes = ", device_bytes,
                        "; the host needs at least ", plan.host_bytes()),
        "host_weight_bytes");
  }
  return plan;
}

ExpertSlots::ExpertSlots(const ResidencyPlan& plan, const RankBytes& bytes, std::byte* device,
                         std::byte* host)
    : experts_(plan.experts),
      device_slots_(plan.on_device + plan.spare),
      bytes_(bytes.expert()),
      offsets_{0, bytes.matrices[0], bytes.matrices[0] + bytes.matrices[1]},
      device_(device),
      host_(host),
      slot_of_(static_cast<size_t>(plan.all())) {
  for (int64_t block = 0; block < plan.blocks; ++block) {
    for (int64_t expert = 0; expert < experts_; ++expert) {
      const int64_t place = expert * plan.blocks + block;
      slot_of_[static_cast<size_t>(block * experts_ + expert)] =
          place < plan.on_device ? place : place + plan.spare;
    }
  }
}

std::byte* ExpertSlots::At(ExpertId id, int matrix) const {
  return Slot(SlotOf(id)) + offsets_[static_cast<size_t>(matrix)];
}

}  // namespace dsv4
