// SPDX-License-Identifier: Apache-2.0
// The plan of an engine: its settings, its devices, and every byte of weights, cache and workspace
// on each of them. dsv4_plan reports it, and EngineMemory is allocated from it; nothing is
// allocated before.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/engine/engine_devices.h"
#include "lib/engine/engine_settings.h"
#include "lib/engine/measured_rates.h"
#include "lib/experts/expert_profile.h"
#include "lib/kv/kv_cache.h"
#include "lib/model/model_ranks.h"
#include "lib/weights/weights.h"

namespace dsv4 {

class EnginePlan {
 public:
  // Opens the devices and reads the headers of the weights' files. The plan is settled within the
  // options so that it fits the memory that is free, less a reserve: experts that a device has no
  // room for lie in host memory, then on disk; a default context is the largest that fits. Errors:
  // those of EngineDevices::Open, Checkpoint::Open and Weights::Describe; those of the options
  // drafter and expert_profile.
  static absl::StatusOr<EnginePlan> Make(EngineSettings settings);
  EnginePlan(EnginePlan&&) = default;

  const EngineSettings& settings() const { return settings_; }
  const EngineFacts& facts() const { return settings_.facts; }
  const EngineInfo& info() const { return settings_.facts.info; }
  const ModelConfig& config() const { return settings_.facts.config; }
  const EngineDevices& devices() const { return *devices_; }
  const std::string& weight_format() const { return weight_format_; }  // see Weights
  const KvCacheShape& cache_shape() const { return cache_shape_; }
  const KvPlan& cache() const { return cache_; }  // without memory
  const StepLimits& limits() const { return limits_; }
  // The profile by which experts are placed; nullopt: none.
  const std::optional<ExpertProfile>& profile() const { return profile_; }
  // The fingerprint of the checkpoint that the profile's file belongs to.
  const ContentHash& profile_checkpoint() const { return profile_checkpoint_; }

  // OutOfDeviceMemory if a device has less free memory than planned (an integrated one less its
  // reserve), OutOfHostMemory if the host has less available memory than planned for its experts.
  absl::Status CheckRoom() const;
  // The context that the model has, if the default one had to be shorter; else 0.
  int64_t whole_context() const { return whole_context_; }
  // Memory that the plan leaves free for the system if the device is an integrated GPU; else 0.
  int64_t system_reserve() const;
  // Replaces the plan by one with less pinned memory, after a block was refused beyond those in
  // `pinned`: experts that find no room there stay on disk. At first in smaller blocks, if one was
  // to take all experts. REQUIRES: experts on the host; nothing of the old plan is allocated but
  // `pinned`. Errors: of CheckRoom and ReopenCheckpoint.
  absl::Status PinLess(PinnedBlocks* pinned);
  // CheckRoom for a plan that was opened before and is to be allocated again: if less is free by
  // now, it is replaced by one that fits, with the same limits of steps. Errors: of CheckRoom.
  absl::Status FitAgain();
  // From here on FitAgain leaves alone what other threads read: everything that does not depend on
  // places of experts.
  void Settle() { settled_ = true; }
  // Reads the profile of the option expert_profiles and places experts by it, if there are places
  // to choose. For the plan that is opened: it reads the ends of all tensors.
  absl::Status UseKeptProfile();
  // The weights' targets; `profile` may be null and must outlive them.
  WeightTargets Targets(const ExpertProfile* profile) const;
  // What the model of a rank is made of, over these weights.
  Model::Parts PartsOf(Weights& weights, int rank, absl::Span<const LayerCache> layers) const;
  // The memory of exchanges on each device.
  int64_t exchange_bytes() const;
  bool plans_drafter() const { return facts().plans_drafter(); }
  // The checkpoint that the plan was made from. REQUIRES: not taken.
  const Checkpoint& checkpoint() const { return *checkpoint_; }
  std::unique_ptr<Checkpoint> TakeCheckpoint() { return std::move(checkpoint_); }

  // For what is known only once the engine is open.
  EngineInfo& mutable_info() { return settings_.facts.info; }
  // Replaces the sizes by those of loaded weights and their model: they differ if a file's experts
  // have formats that only their data shows.
  void TakeSizes(const Weights& weights, const ModelRanks& model);
  // Measures rates, and predicts speeds by them in place of table values; `files`: the
  // checkpoint's. Not while the devices compute.
  void Measure(const std::vector<std::string>& files);
  // Opens the checkpoint and the devices again. REQUIRES: nothing uses them.
  absl::Status ReopenCheckpoint();
  absl::Status ReopenDevices();
  void GiveBackPageCache() const;

 private:
  void TakeSizes(const Weights& weights);
  void Predict();
  // Tells the host program what the engine's files do not show: EngineInfo::backend_reason.
  void Note(const std::string& text);
  explicit EnginePlan(EngineSettings settings) : settings_(std::move(settings)) {}
  absl::Status Plan();
  // Plans all bytes for the settings as they are now. Can be repeated.
  absl::Status PlanBytes();
  // In engine_fit.cc: settles what the options leave open so that the plan fits.
  absl::Status Fit();
  absl::Status FitOnDevices();
  absl::Status FitBudgets(const ExpertBudgets& given);
  absl::Status FitGiven();
  absl::Status FitContext();
  bool LimitHost();
  std::optional<int64_t> FreeBytes(Device* device) const;
  int64_t Room() const;
  int64_t HostRoom() const;
  int64_t PinnedRoom() const;
  absl::Status ReadProfile();
  absl::Status ChooseDrafter(const Weights& weights);
  absl::Status DescribeWeights(const Weights& weights);
  absl::Status PlanMemory(Weights& weights);
  absl::Status CheckHostRoom() const;
  KvCacheShape CacheShape(const Weights& weights) const;
  StepLimits Limits() const;

  EngineSettings settings_;
  std::optional<EngineDevices> devices_;
  std::string weight_format_;
  KvCacheShape cache_shape_;
  KvPlan cache_;
  StepLimits limits_;
  std::optional<ExpertProfile> profile_;
  ContentHash profile_checkpoint_;
  bool chooses_places_ = false;
  int64_t whole_context_ = 0;
  MeasuredRates measured_;  // by Measure
  bool settled_ = false;
  int64_t held_ = 0;     // bytes of host memory that are the plan's already
  ExpertBudgets given_;  // the options', as far as the system and its drivers have granted them
  std::unique_ptr<Checkpoint> checkpoint_;  // null: taken
};

}  // namespace dsv4
