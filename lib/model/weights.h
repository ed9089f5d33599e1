// SPDX-License-Identifier: Apache-2.0
// The weights of one model as views into its checkpoint: every tensor of model.md section 2,
// checked for presence, dtype and shape against the configuration. The views live as long as the
// Weights object, which keeps the files mapped. Large tensors are never copied; a tensor that lies
// unaligned for its element type in its file, or needs another type, is copied once into memory
// that Weights owns. For devices with memory of their own, the ranks' views point there instead, to
// what their kernels read.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/registry/dispatch.h"
#include "lib/device/device.h"
#include "lib/io/checkpoint.h"
#include "lib/model/config.h"
#include "lib/model/cpu_share.h"
#include "lib/model/expert_fetcher.h"
#include "lib/model/expert_mover.h"
#include "lib/model/expert_pages.h"
#include "lib/model/expert_profile.h"
#include "lib/model/expert_read_times.h"
#include "lib/model/expert_residency.h"
#include "lib/model/expert_streamer.h"
#include "lib/model/shard.h"
#include "lib/model/weight_views.h"

namespace dsv4 {

// Where a rank's weights are for: a device, and the kernels that pack them for it.
struct WeightTarget {
  Device* device = nullptr;
  Dispatch* dispatch = nullptr;
  // Else another process's: the device is one like it, by which its weights are planned alone.
  bool here = true;
};
// The ranks' targets, all of one kind; none: the host's memory.
struct WeightTargets {
  Shards shards;
  std::vector<WeightTarget> ranks;  // [shards.ranks]
  WeightTarget cpu{};               // that computes budgets.cpu_experts of each block; of one rank
  ExpertBudgets budgets{};          // without devices with memory of their own: host_bytes alone
  // Bytes of memory that the machine has left, if known. Without devices with memory of their own
  // and without a budget, experts beyond it are left on disk.
  std::optional<int64_t> available{};
  // Which experts begin in the fastest memory; null: no profile.
  const ExpertProfile* profile = nullptr;
};

// The model's own views are into the host's memory. Where devices have their own, only a rank's may
// be read once it is loaded.
class Weights : public WeightViews {
 public:
  // Checks and maps every tensor of `config` in `checkpoint`. Errors: NotFound for a missing
  // tensor, Corrupt for a wrong dtype or shape, an element that is not a finite number (a scale
  // byte of 255, an e4m3 NaN, an infinite bf16 or F32) or a tid2eid entry outside [0, E); each
  // names the tensor and the file. F32 scales that are all powers of two become E8M0, and NVFP4
  // experts whose scales allow it MXFP4, both without loss. A device with memory of its own runs
  // the routed experts of a block in one format: in MXFP4 where all of them have its values, else
  // in their own. A sample of the first expert tells which; where a later one turns out to be
  // unlike it, all are looked at, and read once more. Experts of a block in several formats that
  // are not all MXFP4 are Unsupported, naming the first, and with experts in MXFP4 so is a shared
  // one whose F32 scales are no powers of two; an FP8 expert on disk that is unlike the sample is
  // so when it is read. A drafter is optional, and its tensors tell its kind (main_proj, e_proj):
  // without any mtp.* there is none; some of its tensors without the others are Corrupt. Tensors
  // that are in no table are ignored. Targets whose memory is not the host's receive every tensor,
  // or their rows of it, as soon as it is read, once for all of them, and the copies on the host
  // are given up; OutOfDeviceMemory, and PlanResidency's refusals of their budgets.
  // `progress(done_bytes, total_bytes)`, which may be empty, is called from this thread at least
  // every 16 MiB as the tensors' pages are read; false cancels (Cancelled). REQUIRES: `config`
  // comes from ParseModelConfig.
  static absl::StatusOr<std::unique_ptr<Weights>> Load(
      const ModelConfig& config, std::unique_ptr<Checkpoint> checkpoint,
      const std::function<bool(int64_t, int64_t)>& progress, const WeightTargets& targets = {});

  // The same checks of presence, dtype and shape without reading any data or taking memory for
  // copies: for planning memory. The views may be passed to what plans with them, not read.
  static absl::StatusOr<std::unique_ptr<Weights>> Describe(const ModelConfig& config,
                                                           std::unique_ptr<Checkpoint> checkpoint,
                                                           const WeightTargets& targets = {});

  // Name, dtype, shape and bytes of every tensor that Load looks for.
  static std::vector<TensorEntry> TensorsOf(const ModelConfig& config);

  // What a rank computes with.
  const WeightViews& views(int rank) const {
    return ranks_.empty() ? *this : ranks_[static_cast<size_t>(rank)].views;
  }
  WeightViews& views(int rank) {
    return ranks_.empty() ? *this : ranks_[static_cast<size_t>(rank)].views;
  }
  // Bytes of it: on its device, or what it reads of files and copies.
  int64_t bytes(int rank) const {
    return ranks_.empty() ? mapped_bytes_ + owned_bytes_ : ranks_[static_cast<size_t>(rank)].bytes;
  }

  int64_t mapped_bytes() const { return mapped_bytes_; }  // of the tensors in use, as stored
  // How matrices and the routed experts of layers are stored: "fp8+fp4", "fp8+nvfp4", "fp8+fp8",
  // with all the experts' formats where there are several ("fp8+fp4,nvfp4").
  std::string weight_format() const;
  // Whether the routed experts of layers are all as expert_dtype of config.json says.
  bool ExpertsAre(absl::string_view expert_dtype) const;
  int64_t owned_bytes() const { return owned_bytes_; }    // of the copies
  int64_t device_bytes() const { return device_bytes_; }  // of devices' own memory, 0 without
  // What moves a rank's experts between device and host; null where they stay.
  ExpertMover* mover(int rank) const {
    return ranks_.empty() ? nullptr : ranks_[static_cast<size_t>(rank)].mover.get();
  }
  // What brings a rank's experts from disk; null where none lie there.
  ExpertFetcher* fetcher(int rank) const {
    return ranks_.empty() ? nullptr : ranks_[static_cast<size_t>(rank)].fetcher.get();
  }
  // The CPU's share of a rank's experts; null where it has none.
  CpuShare* share(int rank) const {
    return ranks_.empty() ? nullptr : ranks_[static_cast<size_t>(rank)].share.get();
  }
  // What streams a rank's experts through the device; null where none does.
  ExpertStreamer* streamer(int rank) const {
    return ranks_.empty() ? nullptr : ranks_[static_cast<size_t>(rank)].streamer.get();
  }
  // Of the first rank; 0 where all experts lie in one memory, and in other processes.
  const ExpertReadTimes& read_times() const { return read_times_; }
  // What keeps experts of mapped files in memory; null where all of them may stay.
  ExpertPages* pages() const { return pages_.get(); }
  // What counts how often experts are chosen; null where all lie in one memory.
  const ExpertUse* use() const { return use_.get(); }
  // Of devices with memory of their own, or of mapped files with a budget.
  const ResidencyPlan& residency() const { return residency_; }
  const Checkpoint& checkpoint() const { return *checkpoint_; }

 private:
  friend class WeightsLoader;
  friend class WeightPlacement;
  struct Rank {
    WeightViews views;
    // Of a device with its own:
    Buffer host_memory;
    RankBytes sizes;
    WeightPacker::Stage stage;  // sizes alone
    ExpertSlots experts;
    std::unique_ptr<ExpertMover> mover;      // null: none lie on the host
    std::unique_ptr<ExpertFetcher> fetcher;  // null: none lie on disk
    std::unique_ptr<ExpertStreamer> streamer;
    CpuExperts cpu_experts;           // until `share` has them
    std::unique_ptr<CpuShare> share;  // null: the CPU computes none
    Buffer memory;  // freed first, when copies from and to the host's memory are done
    int64_t bytes = 0;
  };
  Weights() = default;
  // Has the plan follow the profile, if there is one. Corrupt where it is of other layers.
  absl::Status CountUse(const ExpertProfile* profile);
  std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<ExpertUse> use_;  // outlives what counts in it
  std::vector<Rank> ranks_;         // none: one rank, on the host
  std::vector<std::unique_ptr<std::byte[]>> owned_;
  std::set<ExpertFormat> expert_formats_;  // of layers.*, as stored
  int64_t mapped_bytes_ = 0;
  int64_t owned_bytes_ = 0;
  int64_t device_bytes_ = 0;
  ResidencyPlan residency_;
  ExpertReadTimes read_times_;
  std::unique_ptr<ExpertPages> pages_;
};

}  // namespace dsv4
