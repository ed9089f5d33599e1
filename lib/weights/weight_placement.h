// SPDX-License-Identifier: Apache-2.0
// Places the weights of devices with memory of their own: plans and allocates the memory, and
// copies each weight to the ranks' devices once the loader has read it. Routed experts beyond a
// device's budget go to host memory or stay on disk.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/weights/weight_table.h"
#include "lib/weights/weight_upload.h"
#include "lib/weights/weights.h"

namespace dsv4 {

class WeightPlacement {
 public:
  // The arguments must outlive it.
  WeightPlacement(const ModelConfig& config, const WeightTargets& targets, Weights* weights)
      : config_(config), targets_(targets), weights_(weights) {}

  // Sets the ranks' views, counts their bytes, and chooses the kernels that pack for their devices.
  // `specs`: all weights of the model, in the order of its table.
  absl::Status Plan(const std::vector<WeightSpec>& specs);

  // Allocates the memory.
  absl::Status Begin();
  // Whether the weight is an expert's matrix that stays in its file.
  bool StaysOnDisk(const WeightSpec& spec) const;
  // Copies weight `index` of the table to the devices. REQUIRES: its view points to memory that was
  // read, in a format that kernels run. If it stays on disk, only its view is used.
  absl::Status Send(const WeightSpec& spec, size_t index);
  // Called after the last Send.
  absl::Status Complete();

 private:
  // Sets the rank's views. Returns the bytes of its weights and, in `stage`, of packing experts.
  absl::StatusOr<RankBytes> PlanRank(const std::vector<WeightSpec>& specs, int rank,
                                     WeightPacker::Stage* stage);
  // The format in which kernels run the weight, a routed expert's.
  static BlockType BlocksOf(const WeightSpec& spec);  // of an expert's matrix
  ExpertFormat FormatOf(const WeightSpec& spec) const;
  absl::Status PlanWeight(const WeightSpec& spec, int64_t n, const WeightUpload& upload,
                          RankBytes* bytes) const;
  // False for the embedding and a drafter's tables: kernels gather their rows and read the
  // checkpoint's layout.
  bool IsPacked(const Bf16Weight* view) const;
  absl::Status SendWeight(const WeightSpec& spec, int64_t n, const ExpertStore& experts,
                          const ViewPointer& view, WeightUpload* upload) const;
  absl::Status SendExperts(MoeWeights* moe, WeightUpload* upload) const;
  // Opens the rank's store of experts, when all of them were sent.
  absl::Status OpenExperts(size_t rank);

  const ModelConfig& config_;
  const WeightTargets& targets_;
  Weights* const weights_;
  std::vector<std::vector<ViewPointer>> views_;  // [ranks][index in the table]
  std::vector<WeightUpload> uploads_;            // [ranks]
};

}  // namespace dsv4
