// SPDX-License-Identifier: Apache-2.0
// Where the weights of devices with memory of their own lie: plans it, takes the memory, and brings
// each tensor to the ranks' devices once the loader has read it. Routed experts beyond a device's
// budget go to the host's memory, or stay on disk.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/model/expert_fetcher.h"
#include "lib/model/weight_table.h"
#include "lib/model/weight_upload.h"
#include "lib/model/weights.h"

namespace dsv4 {

class WeightPlacement {
 public:
  // What is pointed to must outlive it.
  WeightPlacement(const ModelConfig& config, const WeightTargets& targets, Weights* weights)
      : config_(config), targets_(targets), weights_(weights) {}

  // Gives the ranks their views, counts what they take, and chooses the kernels that pack for their
  // devices. `rows`: of the whole model's views, in the order of its table.
  absl::Status Plan(const std::vector<WeightRow>& rows);

  // Takes the memory.
  absl::Status Begin();
  // Whether the row's matrix stays in its file.
  bool StaysOnDisk(const WeightRow& row) const;
  // Row `index` of the table, whose view is read, and in a format that kernels run; of one that
  // stays on disk the view alone.
  absl::Status Send(const WeightRow& row, size_t index);
  // What follows the last row.
  absl::Status Finish();

 private:
  absl::Status PlanRank(const std::vector<WeightRow>& rows, int rank);
  // In which the row's routed expert runs.
  ExpertFormat FormatOf(const WeightRow& row) const;
  absl::Status PlanRow(const WeightRow& row, int64_t n, const WeightUpload& upload,
                       RankBytes* bytes) const;
  // Rows of the embedding are gathered, not multiplied, and a drafter's tables are read by a kernel
  // of their own: they keep their layout.
  bool IsPacked(const Bf16Weight* view) const;
  absl::Status SendRow(const WeightRow& row, int64_t n, const ExpertSlots& experts,
                       const ViewPointer& view, WeightUpload* upload) const;
  // A copy for the CPU of a matrix, whose view for the device is of nothing.
  void KeepForCpu(const WeightRow& row, size_t rank, ExpertMatrix* matrix);
  // A view of a matrix that stays on disk: its source is kept, and it is where it would come to.
  void KeepOnDisk(const WeightRow& row, size_t rank, ExpertMatrix* matrix);
  absl::Status SendExperts(MoeWeights* moe, WeightUpload* upload) const;
  // Places what counts the uses of a rank's experts, and makes what moves and fetches them.
  absl::Status AddMovement(size_t rank, WeightUpload* upload);
  int64_t CountsBytes(int64_t blocks) const;

  const ModelConfig& config_;
  const WeightTargets& targets_;
  Weights* const weights_;
  std::vector<std::vector<ViewPointer>> views_;                    // [ranks][index of a row]
  std::vector<WeightUpload> uploads_;                              // [ranks]
  std::vector<std::vector<std::array<ExpertSource, 3>>> sources_;  // [ranks][block * experts + e]
};

}  // namespace dsv4
