// SPDX-License-Identifier: Apache-2.0
// The weights of one model as views into its checkpoint: every tensor of model.md section 2,
// checked for presence, dtype and shape against the configuration.
// - The views live as long as the Weights object, which keeps the files mapped.
// - A tensor is copied, into memory that Weights owns, only if it is unaligned in its file or needs
//   another type. Large tensors are not.
// - For devices with memory of their own, the ranks' views point to the packed copies there.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/registry/dispatch.h"
#include "lib/config/config.h"
#include "lib/config/shard.h"
#include "lib/device/device.h"
#include "lib/experts/expert_profile.h"
#include "lib/experts/expert_residency.h"
#include "lib/experts/expert_store.h"
#include "lib/io/checkpoint.h"
#include "lib/packing/weight_views.h"

namespace dsv4 {

// The target of a rank's weights: a device, and the kernels that pack weights for it.
struct WeightTarget {
  Device* device = nullptr;
  Dispatch* dispatch = nullptr;
  // False: the rank belongs to another process. Its weights are only planned, for a device like
  // this one.
  bool here = true;
};
// The ranks' targets, all of one kind. None: host memory.
struct WeightTargets {
  Shards shards;
  std::vector<WeightTarget> ranks;  // [shards.ranks]
  ExpertBudgets budgets{};          // without devices with memory of their own: host_bytes only
  // Free memory of the machine in bytes, if known. Without devices with memory of their own and
  // without a budget, experts beyond it stay on disk.
  std::optional<int64_t> available{};
  // Chooses the experts that begin in the fastest memory. Null: no profile.
  const ExpertProfile* profile = nullptr;
  // Pinned memory for the ranks' experts, which outlives the weights. Null: the weights have it.
  PinnedBlocks* pinned = nullptr;
};

// The model's own views point to host memory. If devices have memory of their own, only the ranks'
// views may be read after loading.
class Weights : public WeightViews {
 public:
  // Checks and maps every tensor of `config` in `checkpoint`, and reads each once. Other tensors
  // are ignored. REQUIRES: `config` comes from ParseModelConfig.
  //
  // Targets with memory of their own receive every tensor, or their rows of it, as soon as it is
  // read. Its pages on the host are then dropped.
  //
  // Formats: F32 scales that are all powers of two become E8M0, and NVFP4 experts MXFP4 if their
  // scales allow it, both without loss. A device with memory of its own runs the routed experts of
  // a block in one format: MXFP4 if all of them can be represented in it, else their stored format.
  // A sample of the first expert decides; if a later expert differs from it, all are read again.
  //
  // Drafter: optional; none without a tensor mtp.*. Its tensors determine its kind (main_proj,
  // e_proj).
  //
  // Errors; each names the tensor and the file:
  // - NotFound: a tensor is missing.
  // - Corrupt: a wrong dtype or shape; an element that is not a finite number (a scale byte of 255,
  //   an e4m3 NaN, an infinite bf16 or F32); a tid2eid entry outside [0, E); an incomplete drafter.
  // - Unsupported: a block with experts of several formats that are not all MXFP4; a shared expert
  //   with F32 scales that are not powers of two, next to experts in MXFP4. An FP8 expert on disk
  //   that differs from the sample fails when a pass reads it.
  // - OutOfDeviceMemory, and PlanResidency's errors for the budgets.
  // - Cancelled: `progress(done_bytes, total_bytes)` returned false. It may be empty. It is called
  //   on this thread, at least every 16 MiB.
  static absl::StatusOr<std::unique_ptr<Weights>> Load(
      const ModelConfig& config, std::unique_ptr<Checkpoint> checkpoint,
      const std::function<bool(int64_t, int64_t)>& progress, const WeightTargets& targets = {});

  // Load's checks of presence, dtype and shape for planning memory: reads no data and allocates
  // no copies. The views must not be read.
  static absl::StatusOr<std::unique_ptr<Weights>> Describe(const ModelConfig& config,
                                                           std::unique_ptr<Checkpoint> checkpoint,
                                                           const WeightTargets& targets = {});

  // Name, dtype, shape and bytes of every tensor that Load looks for.
  static std::vector<TensorEntry> TensorsOf(const ModelConfig& config);

  // The views of a rank.
  const WeightViews& views(int rank) const {
    return ranks_.empty() ? *this : ranks_[static_cast<size_t>(rank)].views;
  }
  WeightViews& views(int rank) {
    return ranks_.empty() ? *this : ranks_[static_cast<size_t>(rank)].views;
  }
  // Bytes of a rank's weights: on its device, or in files and copies.
  int64_t bytes(int rank) const {
    return ranks_.empty() ? mapped_bytes_ + owned_bytes_ : ranks_[static_cast<size_t>(rank)].bytes;
  }

  int64_t mapped_bytes() const { return mapped_bytes_; }  // of the tensors in use, as stored
  int64_t mapped_expert_bytes() const { return mapped_expert_bytes_; }  // of routed experts
  // How matrices and the routed experts of layers are stored: "fp8+fp4", "fp8+nvfp4", "fp8+fp8",
  // with all the experts' formats where there are several ("fp8+fp4,nvfp4"). Of a GGUF file the
  // types by its own names: "Q8_0+IQ2_XXS,Q2_K".
  std::string weight_format() const;
  // Whether the routed experts of all layers have the format that expert_dtype of config.json
  // names.
  bool ExpertsAre(absl::string_view expert_dtype) const;
  int64_t owned_bytes() const { return owned_bytes_; }    // of the copies
  int64_t device_bytes() const { return device_bytes_; }  // of devices' own memory, 0 without
  // The routed experts of a rank.
  ExpertStore& experts(int rank) const { return *experts_[static_cast<size_t>(rank)]; }
  // Counts how often experts are chosen; null if all lie in one memory.
  const ExpertUse* use() const { return use_.get(); }
  // The residency of experts on devices with memory of their own, or in mapped files with a budget.
  const ResidencyPlan& residency() const { return residency_; }
  const Checkpoint& checkpoint() const { return *checkpoint_; }
  // For described weights, which are of no use afterwards.
  std::unique_ptr<Checkpoint> TakeCheckpoint() { return std::move(checkpoint_); }

 private:
  friend class WeightsLoader;
  friend class WeightPlacement;
  struct Rank {
    WeightViews views;
    Buffer memory;  // of a device with its own
    int64_t bytes = 0;
  };
  Weights() = default;
  // Makes the plan use the profile, if there is one. Errors: Corrupt if its blocks or experts
  // differ.
  absl::Status CountUse(const ExpertProfile* profile);
  std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<ExpertUse> use_;                     // outlives the objects that add counts to it
  PinnedBlocks pinned_;                                // unless the targets have it; of `experts_`
  std::vector<std::unique_ptr<ExpertStore>> experts_;  // [ranks]
  // None: one rank, on the host. Their memory is freed before that of `experts_`, when copies from
  // and to the host's memory are done.
  std::vector<Rank> ranks_;
  std::vector<std::unique_ptr<std::byte[]>> owned_;
  std::set<ExpertFormat> expert_formats_;  // of layers.*, as stored
  // The types of a GGUF file's quantised products, and of the routed experts of layers.*.
  std::set<BlockType> matrix_blocks_, expert_blocks_;
  int64_t mapped_bytes_ = 0;
  int64_t mapped_expert_bytes_ = 0;
  int64_t owned_bytes_ = 0;
  int64_t device_bytes_ = 0;
  ResidencyPlan residency_;
};

}  // namespace dsv4
