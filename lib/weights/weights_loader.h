// SPDX-License-Identifier: Apache-2.0
// Fills a Weights object from a checkpoint: first every weight of the table is bound to its tensors
// by the file headers, then the data is read once, in file order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "lib/packing/format_changes.h"
#include "lib/weights/weight_placement.h"
#include "lib/weights/weight_table.h"
#include "lib/weights/weights.h"

namespace dsv4 {

class WeightsLoader {
 public:
  // reads: ReadData will be called. Otherwise no copies are allocated, and views to copies must not
  // be read.
  WeightsLoader(const ModelConfig& config, const Checkpoint& checkpoint, bool reads,
                Weights* weights)
      : config_(config), checkpoint_(checkpoint), reads_(reads), weights_(weights) {}

  // Binds every view to tensors of the checkpoint.
  absl::Status ResolveAll();

  // Sets the ranks' views and counts their bytes. Chooses the format in which devices run each
  // block: by a sample of its first expert or, with `all_read`, by all its experts.
  absl::Status PlanRanks(const WeightTargets& targets, bool all_read);

  // Reads every tensor and copies it to the targets.
  absl::Status ReadData(const WeightTargets& targets,
                        const std::function<bool(int64_t, int64_t)>& progress);
  // Whether ReadData failed because a sample had the wrong format: call PlanRanks with `all_read`.
  bool misled() const { return misled_; }

 private:
  // What becomes of a tensor of a GGUF file in its copy.
  enum class Change { kNone, kToF32, kToBf16 };
  // A tensor whose data is still to be read.
  struct Pending {
    const TensorEntry* entry;
    std::byte* copy;  // the memory for its elements; null: the view points to the mapped file
    Change change = Change::kNone;
  };

  // A view and its tensors.
  struct Bound {
    WeightSpec spec;
    size_t index;  // in the order of the table
    size_t first_pending, pending_count;
  };

  // In weights_binding.cc.
  absl::Status Resolve(const std::vector<WeightSpec>& specs);
  absl::Status ResolveDrafter();
  size_t DrafterStages() const;
  // The first name in `specs` that the checkpoint lacks, and the first that it has. "" if there is
  // none.
  std::string FirstAbsent(const std::vector<WeightSpec>& specs) const {
    return First(specs, false);
  }
  std::string FirstPresent(const std::vector<WeightSpec>& specs) const {
    return First(specs, true);
  }
  std::string First(const std::vector<WeightSpec>& specs, bool present) const;
  // Whether the tensor lies in a GGUF file; if there is none, whether the model does.
  bool InGguf(const std::string& name) const;
  absl::Status Missing(const std::string& name) const;
  absl::StatusOr<const TensorEntry*> Require(const std::string& name, DType dtype,
                                             absl::Span<const int64_t> shape) const;
  std::byte* Own(int64_t bytes);
  void ReadLater(const TensorEntry& entry, std::byte* copy);
  // The elements of `entry`, aligned for T: in the file if it aligns them, otherwise in a copy.
  template <class T>
  const T* Aligned(const TensorEntry& entry);
  // The tensor `name` of GGUF files, of any type that BlockTypeOf knows.
  absl::StatusOr<const TensorEntry*> RequireAny(const std::string& name,
                                                absl::Span<const int64_t> shape) const;
  static BlockType BlockTypeOf(const TensorEntry& entry);
  // Its `count` elements, widened or rounded in a copy.
  std::byte* Changed(const TensorEntry& entry, int64_t count, Change change);
  // Its blocks, in the file.
  absl::StatusOr<BlockWeight> BindBlocks(const std::string& name, int64_t n, int64_t k);
  absl::Status Bind(const WeightSpec& spec, const float** view);
  absl::Status Bind(const WeightSpec& spec, const uint16_t** view);
  absl::Status Bind(const WeightSpec& spec, Bf16Weight* view);
  absl::Status Bind(const WeightSpec& spec, const int32_t** view);
  absl::Status Bind(const WeightSpec& spec, Fp8Weight* view);
  absl::Status Bind(const WeightSpec& spec, ExpertMatrix* view);
  // F32, without dimensions or with one element.
  absl::StatusOr<const TensorEntry*> RequireScalar(const std::string& name) const;

  // In weights_loader.cc.
  absl::Status ReadPart(const Pending& pending, int64_t begin, int64_t end);
  // ReadPart of a tensor of a GGUF file that is changed, or quantised.
  absl::Status ReadBlocks(const Pending& pending, int64_t begin, int64_t end);
  template <class T>
  absl::Status CheckExperts(const TensorEntry& entry, int64_t begin, int64_t end) const;

  absl::Status Read(const Bound& bound, const std::function<bool(const Pending&)>& accepts,
                    const std::function<bool(int64_t)>& read);
  absl::Status Settle(const Bound& bound, FormatChanges* changes) const;
  // The part of Settle for an expert that stays on disk: reads NVFP4 scales, which determine its
  // format.
  absl::Status CheckOnDisk(const Bound& bound, FormatChanges* changes) const;
  // Drops a weight's tensors from the page cache. `paths`: of the files.
  void DropPages(const Bound& bound, const std::vector<std::string>& paths) const;
  // Chooses the formats in which devices run the blocks' routed experts.
  void ChooseDeviceFormats(bool all_read);
  // A routed expert's matrix in the format of its file.
  ExpertMatrix StoredExpert(const WeightSpec& spec, std::vector<float>* f32_scales) const;
  void PlanHostRanks(const Shards& shards);
  absl::Status PlanMapped(const WeightTargets& targets);
  static bool OnHost(const WeightTargets& targets) {
    return targets.ranks.empty() || targets.ranks[0].device->host_memory();
  }

  std::string Where(const TensorEntry& entry) const {
    return absl::StrCat(checkpoint_.FileOf(entry), ": tensor ", entry.shown_name());
  }

  const ModelConfig& config_;
  const Checkpoint& checkpoint_;
  const bool reads_;
  Weights* weights_;
  std::vector<Pending> pending_;
  std::vector<Bound> bound_;
  std::unique_ptr<WeightPlacement> placement_;  // of devices with memory of their own
  bool misled_ = false;
  int64_t foldable_bytes_ = 0;  // part of owned_bytes_: scales that all NVFP4 experts have as MXFP4
};

}  // namespace dsv4
