// SPDX-License-Identifier: Apache-2.0
// Fits a plan to the memory that is free. Order: dense weights, cache and workspace; then routed
// experts in device memory, host memory and on disk. Limits of the options are upper bounds.
#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/engine/engine_plan.h"
#include "lib/engine/expectation.h"
#include "lib/io/system_memory.h"

namespace dsv4 {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();

// Memory of a GPU that a plan leaves free: for what CUDA takes for kernels and graphs (0.2 GB on an
// H100 for 38 layers), and for a desktop that shares the GPU.
int64_t DeviceReserve(int64_t free, bool pages) {
  // Windows gives a process less when another one asks for more, and moves what is too much then.
  return pages ? std::min(2 * kGiB, free / 8) : std::min(kGiB, free / 16);
}

// An integrated GPU's memory is the system's: a system that runs out of it freezes.
int64_t IntegratedReserve(int64_t available) {
  return std::min(std::max(8 * kGiB, available / 100 * 8), available / 4);
}

// Pinned memory is never swapped out. On the CPU: for the page cache of other files.
int64_t HostReserve(int64_t available) { return available / 8; }

// A block of pinned memory, where Windows manages it: by all reports it gives no larger ones than
// some GiB when others have been taken.
constexpr int64_t kPinnedPiece = kGiB;

// Of what Windows lets drivers pin: for transfers, steps' inputs, and other programs.
int64_t PinnedReserve(int64_t pinnable) { return pinnable / 8; }

constexpr int64_t kLeastChunk = 256;    // tokens of a prompt's step, if the default does not fit
constexpr int64_t kContextStep = 4096;  // tokens by which a default context shrinks

}  // namespace

std::optional<int64_t> EnginePlan::FreeBytes(Device* device) const {
  return device->integrated() ? AvailableSystemMemory(settings_.options.system_root)
                              : device->FreeBytes();
}

int64_t EnginePlan::system_reserve() const {
  if (!devices_->front().integrated()) return 0;
  return IntegratedReserve(AvailableSystemMemory(settings_.options.system_root).value_or(0));
}

// What is left of the free memory, less the reserve: of the device that has least, or of the host
// if it is the device. Negative: the plan does not fit. kUnknown if no device tells.
int64_t EnginePlan::Room() const {
  if (devices_->front().host_memory()) {
    const int64_t room = HostRoom();
    if (room == kUnknown) return room;
    const TokenWork work = WorkOf(info(), config(), weight_format_);
    // Experts are read from their files if there is no room for them.
    return room - static_cast<int64_t>(work.dense_bytes) - info().cache_bytes -
           info().workspace_bytes;
  }
  int64_t room = kUnknown;
  const bool pages = PinnableMemory(settings_.options.system_root).has_value();
  const std::vector<Device*> devices = devices_->pointers();
  for (size_t i = 0; i < devices.size(); ++i) {
    const bool integrated = devices[i]->integrated();
    const std::optional<int64_t> free = FreeBytes(devices[i]);
    if (!free) continue;
    const ResidencyPlan& experts = info().residency;
    const int64_t host = integrated ? experts.stage_bytes : 0;
    const DeviceBytes& plan = info().devices[static_cast<size_t>(settings_.first_rank()) + i];
    const int64_t reserve = integrated ? IntegratedReserve(*free) : DeviceReserve(*free, pages);
    room = std::min(room, *free - reserve - plan.total() - host);
  }
  return room;
}

// Bytes of host memory for experts.
int64_t EnginePlan::HostRoom() const {
  const std::optional<int64_t> available = AvailableMemory(settings_.options.system_root);
  return available ? *available + held_ - HostReserve(*available + held_) : kUnknown;
}

absl::Status EnginePlan::Fit() {
  if (PinnableMemory(settings_.options.system_root)) {
    settings_.options.weight_budgets.host_piece = kPinnedPiece;
  }
  given_ = settings_.options.weight_budgets;
  DSV4_RETURN_IF_ERROR(PlanBytes());
  const EngineOptions& options = settings_.options;
  // Processes of a group would have to agree.
  if (options.group.grouped() || options.weight_budgets.least) return absl::OkStatus();
  if (!devices_->front().host_memory()) return FitOnDevices();
  if (Room() >= 0 || options.context_tokens != 0 || options.cache_tokens != 0) {
    return absl::OkStatus();
  }
  return FitContext();
}

absl::Status EnginePlan::FitOnDevices() {
  EngineOptions& options = settings_.options;
  const ExpertBudgets given = options.weight_budgets;
  // A limit of device memory that fits stays as it is.
  if (Room() >= 0 && LimitHost() && !PlanBytes().ok()) {
    // The host has no room for reads from disk: CheckRoom says so.
    options.weight_budgets = given;
    return PlanBytes();
  }
  if (Room() < 0) {
    DSV4_RETURN_IF_ERROR(FitBudgets(given));
    while (Room() < 0 && options.prefill_chunk_tokens == 0 &&
           info().prefill_chunk_tokens > kLeastChunk) {
      settings_.chunk_limit = std::max<int64_t>(info().prefill_chunk_tokens / 2, kLeastChunk);
      DSV4_RETURN_IF_ERROR(FitBudgets(given));
    }
    if (Room() < 0 && options.context_tokens == 0 && options.cache_tokens == 0) {
      DSV4_RETURN_IF_ERROR(FitContext());
      if (Room() >= 0) DSV4_RETURN_IF_ERROR(FitBudgets(given));
    }
  }
  const ExpertBudgets& budgets = options.weight_budgets;
  if (budgets.device_bytes == given.device_bytes && budgets.host_bytes == given.host_bytes &&
      whole_context_ == 0) {
    return absl::OkStatus();
  }
  Log(LogLevel::kInfo,
      "fitted to the memory that is free: device_weight_bytes = ", budgets.device_bytes,
      ", host_weight_bytes = ", budgets.host_bytes,
      " (0: as much as needed), context_tokens = ", info().context_tokens,
      ", prefill_chunk_tokens = ", info().prefill_chunk_tokens, ", of experts ",
      info().residency.on_device, " on the device, ", info().residency.on_host, " on the host, ",
      info().residency.on_disk, " on disk");
  return absl::OkStatus();
}

// Bytes that experts of a GPU may pin.
int64_t EnginePlan::PinnedRoom() const {
  const std::optional<int64_t> pinnable = PinnableMemory(settings_.options.system_root);
  const int64_t room = HostRoom();
  return pinnable ? std::min(room, *pinnable - PinnedReserve(*pinnable)) : room;
}

// Lowers the limit of host memory to what there is, and returns whether it did.
bool EnginePlan::LimitHost() {
  ExpertBudgets& budgets = settings_.options.weight_budgets;
  const ResidencyPlan& experts = info().residency;
  if (devices_->front().integrated() || experts.on_host == 0) return false;
  const int64_t room = PinnedRoom();
  if (experts.host_bytes() <= room) return false;
  budgets.host_bytes = std::max<int64_t>(room, 1);
  return true;
}

// Finds the largest budget of device memory and, if the rest of the experts is too large for host
// memory, the budget there. Leaves the smallest budget of device memory if even that does not fit.
absl::Status EnginePlan::FitBudgets(const ExpertBudgets& given) {
  ExpertBudgets& budgets = settings_.options.weight_budgets;
  const bool integrated = devices_->front().integrated();
  budgets = given;
  budgets.device_bytes = 0;
  budgets.least = true;
  settings_.SettlePrefillChunk();
  DSV4_RETURN_IF_ERROR(PlanBytes());
  // With experts on disk a device's smallest budget is another one.
  if (LimitHost()) DSV4_RETURN_IF_ERROR(PlanBytes());
  if (Room() < 0) return absl::OkStatus();

  // Sizes of workspaces, and of what moves experts, depend on the budgets.
  constexpr int kTries = 8;
  ExpertBudgets best = budgets;
  bool is_best = true;  // the plan is that of `best`
  for (int i = 0; i < kTries; ++i) {
    const ResidencyPlan& experts = info().residency;
    const int64_t on_host = integrated ? experts.stage_bytes : 0;
    const int64_t room = Room();
    if (room >= 0) {
      if (LimitHost()) {
        DSV4_RETURN_IF_ERROR(PlanBytes());
        continue;
      }
      best = budgets;
      is_best = true;
    }
    // A budget is an upper bound: what moves experts may take less of it than it counts.
    const int64_t used = info().fullest().weights + on_host;
    const int64_t budget = budgets.least ? used : budgets.device_bytes;
    int64_t next = (room < 0 ? std::min(budget, used) : budget) + room;
    if (given.device_bytes > 0) next = std::min(next, given.device_bytes);
    if (next - best.device_bytes < std::max<int64_t>(experts.expert_bytes, 1)) break;
    const int64_t host_bytes = budgets.host_bytes;
    budgets = given;
    budgets.device_bytes = next;
    budgets.host_bytes = host_bytes;
    is_best = false;
    if (!PlanBytes().ok()) break;
  }
  if (is_best) return absl::OkStatus();
  budgets = best;
  return PlanBytes();
}

// Fits the budgets anew within given_, that of the device only if it does not fit. Sessions may
// exist, whose steps keep their limits.
absl::Status EnginePlan::FitGiven() {
  ExpertBudgets& budgets = settings_.options.weight_budgets;
  settings_.chunk_limit = info().prefill_chunk_tokens;
  if (given_.host_bytes > 0 &&
      (budgets.host_bytes == 0 || budgets.host_bytes > given_.host_bytes)) {
    budgets.host_bytes = given_.host_bytes;
  }
  absl::Status planned = PlanBytes();
  if (planned.ok() && !given_.least && LimitHost()) planned = PlanBytes();
  if (given_.least || (planned.ok() && Room() >= 0)) return planned;
  DSV4_RETURN_IF_ERROR(FitBudgets(given_));
  if (given_.device_bytes == 0 || info().fullest().weights <= given_.device_bytes) {
    return absl::OkStatus();
  }
  budgets = given_;  // says what is needed
  return PlanBytes();
}

absl::Status EnginePlan::FitAgain() {
  const absl::Status room = CheckRoom();
  if (room.ok() || settings_.options.group.grouped() || devices_->front().host_memory())
    return room;
  const int64_t before = info().residency.on_device;
  DSV4_RETURN_IF_ERROR(FitGiven());
  DSV4_RETURN_IF_ERROR(CheckRoom());
  Log(LogLevel::kWarning, room.message(), ". Planned anew, with ", info().residency.on_device,
      " routed experts on the device instead of ", before);
  return absl::OkStatus();
}

absl::Status EnginePlan::PinLess(PinnedBlocks* pinned) {
  const ResidencyPlan before = info().residency;
  const int64_t granted = pinned->bytes();
  pinned->Restart();
  if (given_.host_piece == 0) {
    pinned->Keep(0);
    given_.host_piece = settings_.options.weight_budgets.host_piece = kPinnedPiece;
    Log(LogLevel::kWarning, "a block of pinned memory was refused; experts of ",
        before.host_bytes(), " bytes are pinned in blocks of ", kPinnedPiece);
    return PlanBytes();
  }
  const int64_t limit = std::min(granted, before.host_bytes());
  given_.host_bytes = std::max(limit - PinnedReserve(limit), before.least_host_bytes);
  held_ = granted;
  absl::Status fits = FitGiven();
  if (fits.ok()) fits = CheckRoom();
  held_ = 0;
  DSV4_RETURN_IF_ERROR(fits);
  const ResidencyPlan& after = info().residency;
  pinned->Keep(after.host_bytes());
  const std::string text =
      absl::StrCat("of ", before.host_bytes(), " bytes of host memory for experts, ", granted,
                   " were pinned: the plan takes ", after.host_bytes(), ", and ", after.on_disk,
                   " of ", after.all(), " experts stay on disk");
  Log(LogLevel::kWarning, text);
  Note(text);
  return absl::OkStatus();
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
    (Room() >= 0 ? fits : too_long) = middle;
  }
  if (fits == 0) return plan_with(whole);
  whole_context_ = whole;
  Log(LogLevel::kInfo, "context_tokens = ", fits * kContextStep,
      " is the longest context that fits; the model has ", whole);
  return plan_with(fits * kContextStep);
}

absl::Status EnginePlan::CheckHostRoom() const {
  const ExpertBudgets& budgets = settings_.options.weight_budgets;
  if (!budgets.limited() && budgets.host_bytes == 0) return absl::OkStatus();
  std::optional<int64_t> available = AvailableMemory(settings_.options.system_root);
  if (available) *available += held_;
  return ExpectHostRoom(info().residency, static_cast<int64_t>(devices_->size()), settings_.ranks(),
                        available);
}

absl::Status EnginePlan::CheckRoom() const {
  DSV4_RETURN_IF_ERROR(CheckHostRoom());
  const std::vector<Device*> devices = devices_->pointers();
  for (size_t i = 0; i < devices.size(); ++i) {
    const bool integrated = devices[i]->integrated();
    const std::optional<int64_t> free = FreeBytes(devices[i]);
    if (!free) continue;
    const DeviceBytes& plan = info().devices[static_cast<size_t>(settings_.first_rank()) + i];
    const ResidencyPlan& experts = info().residency;
    const int64_t reads = integrated ? experts.stage_bytes : 0;
    const int64_t reserve = integrated ? IntegratedReserve(*free) : 0;
    if (plan.total() + reads <= *free - reserve) continue;
    return OutOfDeviceMemory(
        "cuda:", devices[i]->index(), " (", devices[i]->name(), ") has ", *free, " bytes free",
        integrated ? absl::StrCat(", of which ", reserve, " stay free for the system") : "",
        "; the plan takes ", plan.total() + reads, " of it: weights ", plan.weights,
        ", key/value cache ", plan.cache, ", workspace ", plan.workspace,
        integrated ? absl::StrCat(", reads of experts from disk ", reads) : "");
  }
  return absl::OkStatus();
}

}  // namespace dsv4
