// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/engine_memory.h"

#include <chrono>
#include <utility>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/dist/device_communicators.h"
#include "lib/dist/memory_communicator.h"

namespace dsv4 {
namespace {

// The longest wait for another rank, which may first have to finish a long prefill on a slow
// machine. Failures are noticed at once; the limit ends waits whose cause goes unnoticed.
constexpr std::chrono::minutes kExchangeLimit{10};

// The longest wait where the ranks are devices that read experts from disk.
constexpr std::chrono::seconds kReadingDeviceLimit{60};

}  // namespace

absl::StatusOr<std::unique_ptr<EngineMemory>> EngineMemory::Allocate(
    EnginePlan* plan, std::unique_ptr<KvCache>* cache, Loading loading) {
  std::unique_ptr<EngineMemory> memory(new EngineMemory);
  DSV4_RETURN_IF_ERROR(memory->LoadWeights(plan, loading));
  DSV4_RETURN_IF_ERROR(memory->AllocateCache(*plan, cache));
  DSV4_RETURN_IF_ERROR(memory->MakeModel(*plan, std::move(loading.group)));
  DSV4_RETURN_IF_ERROR(memory->OpenGroup(*plan));
  return memory;
}

EngineMemory::~EngineMemory() {
  runner_.reset();
  batch_.reset();
  model_.reset();
  if (cache_ == nullptr) return;
  cache_->set_writes(nullptr);
  cache_->FreeMemory();
}

absl::Status EngineMemory::LoadWeights(EnginePlan* plan, const Loading& loading) {
  absl::Status joined;
  std::function<bool(int64_t, int64_t)> progress = loading.progress;
  if (loading.group != nullptr) {
    progress = [&](int64_t done, int64_t total) {
      if (loading.progress && !loading.progress(done, total)) return false;
      joined = loading.group->Loaded(done, total);
      return joined.ok();
    };
  }
  for (;;) {
    WeightTargets targets = plan->Targets(loading.profile);
    targets.pinned = &pinned_;
    absl::StatusOr<std::unique_ptr<Weights>> weights =
        Weights::Load(plan->config(), plan->TakeCheckpoint(), progress, targets);
    DSV4_RETURN_IF_ERROR(joined);
    if (weights.ok()) {
      weights_ = *std::move(weights);
      return absl::OkStatus();
    }
    // Processes of a group would have to agree.
    if (!pinned_.refused() || loading.group != nullptr || plan->info().residency.on_host == 0) {
      return weights.status();
    }
    DSV4_RETURN_IF_ERROR(plan->PinLess(&pinned_));
  }
}

absl::Status EngineMemory::AllocateCache(const EnginePlan& plan, std::unique_ptr<KvCache>* cache) {
  const std::vector<Device*> devices = plan.devices().pointers();
  if (*cache == nullptr) {
    DSV4_ASSIGN_OR_RETURN(*cache, KvCache::Create(plan.cache_shape(), devices));
  } else {
    DSV4_RETURN_IF_ERROR((*cache)->AllocateMemory(devices));
  }
  cache_ = cache->get();
  return absl::OkStatus();
}

absl::Status EngineMemory::MakeModel(const EnginePlan& plan, std::unique_ptr<ProcessGroup> group) {
  const EngineSettings& settings = plan.settings();
  const EngineDevices& devices = plan.devices();
  std::vector<Model::Parts> parts;
  for (int i = 0; i < static_cast<int>(devices.size()); ++i) {
    parts.push_back(plan.PartsOf(*weights_, settings.first_rank() + i, cache_->layers(i)));
    parts.back().streams = cache_->streams(i);
  }
  std::vector<std::unique_ptr<Communicator>> communicators;
  std::shared_ptr<const ExchangeWays> ways;  // between devices with memory of their own
  if (group != nullptr) {
    group_ = group.get();
    communicators.push_back(std::move(group));
  } else if (settings.ranks() > 1 && devices.front().host_memory()) {
    communicators = MemoryCommunicators(settings.ranks(), kExchangeLimit);
  } else if (settings.ranks() > 1) {
    std::vector<DeviceRank> connected;
    for (int rank = 0; rank < settings.ranks(); ++rank) {
      connected.push_back({&devices.device(rank), &devices.dispatch(rank)});
    }
    absl::StatusOr<DeviceCommunicators> all =
        ConnectDevices(connected, settings.options.exchange,
                       plan.info().residency.on_disk > 0 ? kReadingDeviceLimit : kDeviceLimit);
    if (!all.ok()) return WithArgument(all.status(), "devices");
    communicators = std::move(all->ranks);
    ways = std::move(all->ways);
  }
  DSV4_ASSIGN_OR_RETURN(
      model_, ModelRanks::Create(std::move(parts), plan.limits(), std::move(communicators)));
  if (ways != nullptr || group_ != nullptr) {
    Log(LogLevel::kInfo, settings.ranks(), " devices exchange ", plan.info().exchange.bytes,
        " bytes a token in ", plan.info().exchange.exchanges, " exchanges, ",
        ways != nullptr ? ways->Describe() : "by NCCL between processes");
  }
  batch_ = std::make_unique<StepBatch>(plan.limits());
  runner_ = std::make_unique<StepRunner>(
      model_.get(), Drafter::Of(plan.info().drafter, plan.config(), model_.get()),
      plan.config().vocab_size);
  return absl::OkStatus();
}

absl::Status EngineMemory::OpenGroup(const EnginePlan& plan) {
  if (group_ == nullptr) return absl::OkStatus();
  DSV4_RETURN_IF_ERROR(group_->Opened(plan.info().residency.on_disk > 0));
  if (group_->rank() > 0) return absl::OkStatus();
  model_->Lead(group_);
  writes_ = std::make_unique<TellWrites>(group_);
  cache_->set_writes(writes_.get());
  return absl::OkStatus();
}

}  // namespace dsv4
