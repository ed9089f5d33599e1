// SPDX-License-Identifier: Apache-2.0
#include "lib/model/expert_read_times.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "lib/base/status_macros.h"

namespace dsv4 {
namespace {

constexpr int64_t kMostCopies = 16;  // milliseconds over a slow link
constexpr int kLane = 0;

// Seconds to copy one of the slots [first, first + count) to the slots from `to` on.
absl::StatusOr<double> CopySeconds(const ExpertSlots& slots, int64_t first, int64_t count,
                                   int64_t to, Device* device) {
  if (count <= 0 || slots.slot_bytes() == 0) return 0;
  std::vector<MemoryCopy> copies;
  for (int64_t i = 0; i < count; ++i) {
    copies.push_back({slots.Slot(to + i), slots.Slot(first + i), slots.slot_bytes()});
  }
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

}  // namespace

absl::StatusOr<ExpertReadTimes> MeasureExpertReads(const ResidencyPlan& plan,
                                                   const ExpertSlots& slots, Device* device) {
  // No other copies run then.
  DSV4_RETURN_IF_ERROR(device->Synchronize());
  const int64_t empty = std::min(kMostCopies, plan.spare + plan.guests);
  ExpertReadTimes times;
  DSV4_ASSIGN_OR_RETURN(
      times.device, CopySeconds(slots, 0, std::min(empty, plan.on_device), plan.on_device, device));
  times.device /= 2;  // a copy writes as much as it reads
  DSV4_ASSIGN_OR_RETURN(times.host,
                        CopySeconds(slots, plan.device_slots(), std::min(empty, plan.on_host),
                                    plan.on_device, device));
  return times;
}

}  // namespace dsv4
