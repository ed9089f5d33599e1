// SPDX-License-Identifier: Apache-2.0
// Fits a plan to the memory that is free. Order: dense weights, cache and workspace; then routed
// experts in device memory, host memory and on disk.
#include <algorithm>
#include <limits>

#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/engine/engine_plan.h"
#include "lib/io/system_memory.h"

namespace dsv4 {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

// Memory of a GPU that a plan leaves free: for what CUDA takes for kernels and graphs (0.2 GB on an
// H100 for 38 layers), and for a desktop that shares the GPU.
int64_t DeviceReserve(int64_t free) { return std::min(kGiB, free / 16); }

// An integrated GPU's memory is the system's: a system that runs out of it freezes.
int64_t IntegratedReserve(int64_t available) {
  return std::min(std::max(8 * kGiB, available / 100 * 8), available / 4);
}

// Pinned memory is never swapped out.
int64_t HostReserve(int64_t available) { return available / 8; }

constexpr int64_t kContextStep = 4096;  // tokens by which a default context shrinks

}  // namespace

// What is left of each device's free memory, less the reserve, where there is least; negative: the
// plan does not fit. The largest number if no device tells.
int64_t EnginePlan::DeviceRoom() const {
  int64_t room = std::numeric_limits<int64_t>::max();
  const std::vector<Device*> devices = devices_->pointers();
  for (size_t i = 0; i < devices.size(); ++i) {
    const bool integrated = devices[i]->integrated();
    const std::optional<int64_t> free = integrated ? AvailableMemory() : devices[i]->FreeBytes();
    if (!free) continue;
    const ResidencyPlan& experts = info().residency;
    const int64_t host = integrated ? experts.stage_bytes + experts.cpu_bytes : 0;
    const DeviceBytes& plan = info().devices[static_cast<size_t>(settings_.first_rank()) + i];
    const int64_t reserve = integrated ? IntegratedReserve(*free) : DeviceReserve(*free);
    room = std::min(room, *free - reserve - plan.total() - host);
  }
  return room;
}

// Bytes of host memory for experts; nullopt: unknown.
std::optional<int64_t> EnginePlan::HostRoom() const {
  const std::optional<int64_t> available = AvailableMemory();
  if (!available) return std::nullopt;
  return *available - HostReserve(*available);
}

absl::Status EnginePlan::Fit() {
  DSV4_RETURN_IF_ERROR(PlanBytes());
  const EngineOptions& options = settings_.options;
  // Processes of a group would have to agree.
  if (devices_->front().host_memory() || options.group.grouped()) return absl::OkStatus();
  if (DeviceRoom() >= 0) return absl::OkStatus();
  const ExpertBudgets given = options.weight_budgets;
  if (!given.limited()) DSV4_RETURN_IF_ERROR(FitBudgets(given));
  if (DeviceRoom() < 0 && options.context_tokens == 0 && options.cache_tokens == 0) {
    DSV4_RETURN_IF_ERROR(FitContext());
    if (!given.limited() && DeviceRoom() >= 0) DSV4_RETURN_IF_ERROR(FitBudgets(given));
  }
  const ExpertBudgets& budgets = options.weight_budgets;
  Log(LogLevel::kInfo,
      "fitted to the memory that is free: device_weight_bytes = ", budgets.device_bytes,
      ", host_weight_bytes = ", budgets.host_bytes,
      " (0: as much as needed), context_tokens = ", info().context_tokens, ", of experts ",
      info().residency.on_device, " on the device, ", info().residency.on_host, " on the host, ",
      info().residency.on_disk, " on disk");
  return absl::OkStatus();
}

// Finds the largest budget of device memory and, if the rest of the experts is too large for host
// memory, the budget there. Leaves the smallest budget of device memory if even that does not fit.
absl::Status EnginePlan::FitBudgets(const ExpertBudgets& given) {
  ExpertBudgets& budgets = settings_.options.weight_budgets;
  const bool integrated = devices_->front().integrated();
  const auto plan_least = [&] {
    budgets = given;
    budgets.least = true;
    settings_.SettlePrefillChunk();
    return PlanBytes();
  };
  // Gives the host a budget if it needs one. With experts on disk a device's smallest budget is
  // another one.
  const auto limits_host = [&] {
    const std::optional<int64_t> room = HostRoom();
    if (integrated || budgets.host_bytes != 0 || !room) return false;
    if (info().residency.host_bytes() <= *room) return false;
    budgets.host_bytes = std::max<int64_t>(*room, 1);
    return true;
  };
  DSV4_RETURN_IF_ERROR(plan_least());
  if (limits_host()) DSV4_RETURN_IF_ERROR(PlanBytes());
  if (DeviceRoom() < 0) return absl::OkStatus();

  // Sizes of workspaces, and of what moves experts, depend on the budgets.
  constexpr int kTries = 8;
  ExpertBudgets best = budgets;
  bool is_best = true;  // the plan is that of `best`
  for (int i = 0; i < kTries; ++i) {
    const ResidencyPlan& experts = info().residency;
    const int64_t on_host = integrated ? experts.stage_bytes + experts.cpu_bytes : 0;
    const int64_t room = DeviceRoom();
    if (room >= 0) {
      if (limits_host()) {
        DSV4_RETURN_IF_ERROR(PlanBytes());
        continue;
      }
      best = budgets;
      is_best = true;
    }
    // A budget is an upper bound: what moves experts may take less of it than it counts.
    const int64_t next =
        (budgets.least ? info().fullest().weights + on_host : budgets.device_bytes) + room;
    if (next - best.device_bytes < std::max<int64_t>(experts.expert_bytes, 1)) break;
    budgets = given;
    budgets.device_bytes = next;
    is_best = false;
    if (!PlanBytes().ok()) break;
  }
  if (is_best) return absl::OkStatus();
  budgets = best;
  return PlanBytes();
}

// The largest context with which the plan fits, in steps of kContextStep. Leaves the whole context
// if none fits.
absl::Status EnginePlan::FitContext() {
  EngineInfo& info = mutable_info();
  const int64_t whole = info.context_tokens;
  const auto plan_with = [&](int64_t context) {
    info.context_tokens = info.cache_tokens = context;
    settings_.SettlePrefillChunk();
    return PlanBytes();
  };
  int64_t fits = 0, too_long = (whole + kContextStep - 1) / kContextStep;
  while (too_long - fits > 1) {
    const int64_t middle = fits + (too_long - fits) / 2;
    DSV4_RETURN_IF_ERROR(plan_with(middle * kContextStep));
    (DeviceRoom() >= 0 ? fits : too_long) = middle;
  }
  if (fits == 0) return plan_with(whole);
  Log(LogLevel::kInfo, "context_tokens = ", fits * kContextStep,
      " is the longest context that fits; the model has ", whole);
  return plan_with(fits * kContextStep);
}

}  // namespace dsv4
