// SPDX-License-Identifier: Apache-2.0
// The tables through which kernels reach a rank's experts, block by block.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "lib/device/device.h"
#include "lib/model/expert_residency.h"
#include "lib/tensor/quant_format.h"

namespace dsv4 {

class ExpertTable {
 public:
  // A block's experts: the host's views, and the table that kernels read.
  struct Block {
    ExpertWeights* experts = nullptr;
    std::byte* table = nullptr;
  };

  ExpertTable() = default;
  // The arguments must outlive the table.
  ExpertTable(Device* device, const ExpertSlots* slots, std::vector<Block> blocks)
      : device_(device), slots_(slots), blocks_(std::move(blocks)) {}

  // Points the host's views of the expert to the slot.
  static void Rebase(ExpertWeights* expert, const ExpertSlots& slots, int64_t slot);
  // Makes kernels that are launched afterwards read the expert in the slot.
  absl::Status Point(ExpertId id, int64_t slot) const;

 private:
  Device* device_ = nullptr;
  const ExpertSlots* slots_ = nullptr;
  std::vector<Block> blocks_;
};

}  // namespace dsv4
