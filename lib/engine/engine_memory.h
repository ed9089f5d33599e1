// SPDX-License-Identifier: Apache-2.0
// The memory of an engine, allocated from its plan: weights, the cache's rows, and the forward pass
// with its workspaces. Suspending an engine destroys it; resuming allocates it again.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "lib/dist/process_group.h"
#include "lib/engine/engine_plan.h"
#include "lib/engine/group.h"
#include "lib/kv/kv_cache.h"
#include "lib/model/model_ranks.h"
#include "lib/step/step_batch.h"
#include "lib/step/step_runner.h"
#include "lib/weights/weights.h"

namespace dsv4 {

class EngineMemory {
 public:
  struct Loading {
    const ExpertProfile* profile = nullptr;          // by which experts are placed; null: none
    std::unique_ptr<ProcessGroup> group;             // joined; null: one process
    std::function<bool(int64_t, int64_t)> progress;  // as EngineOptions::progress
  };

  // Loads the weights, allocates the cache's rows and makes the forward pass. `cache` is created if
  // it is null; otherwise it has no memory, and gets it. Both outlive the result. Where a block of
  // pinned memory is refused, the plan is replaced by one that pins less. Errors: those of
  // Weights::Load, EnginePlan::PinLess, Device::Allocate, ConnectDevices, ModelRanks::Create and
  // ProcessGroup.
  static absl::StatusOr<std::unique_ptr<EngineMemory>> Allocate(EnginePlan* plan,
                                                                std::unique_ptr<KvCache>* cache,
                                                                Loading loading);
  // Frees the cache's rows, too.
  ~EngineMemory();
  EngineMemory(const EngineMemory&) = delete;
  EngineMemory& operator=(const EngineMemory&) = delete;

  Weights& weights() const { return *weights_; }
  ModelRanks& model() const { return *model_; }
  StepBatch& batch() const { return *batch_; }
  StepRunner& runner() const { return *runner_; }
  // Null: one process.
  ProcessGroup* group() const { return group_; }

 private:
  EngineMemory() = default;
  absl::Status LoadWeights(EnginePlan* plan, const Loading& loading);
  absl::Status AllocateCache(const EnginePlan& plan, std::unique_ptr<KvCache>* cache);
  absl::Status MakeModel(const EnginePlan& plan, std::unique_ptr<ProcessGroup> group);
  absl::Status OpenGroup(const EnginePlan& plan);

  PinnedBlocks pinned_;  // of weights_
  std::unique_ptr<Weights> weights_;
  KvCache* cache_ = nullptr;
  ProcessGroup* group_ = nullptr;  // model_'s
  std::unique_ptr<TellWrites> writes_;
  std::unique_ptr<ModelRanks> model_;
  std::unique_ptr<StepBatch> batch_;
  std::unique_ptr<StepRunner> runner_;
};

}  // namespace dsv4
