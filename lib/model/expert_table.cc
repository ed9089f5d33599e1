// SPDX-License-Identifier: Apache-2.0
#include "lib/model/expert_table.h"

namespace dsv4 {
namespace {

// Sets the address of a matrix that moved.
void Rebase(ExpertMatrix* matrix, const std::byte* to) {
  if (matrix->n == 0) return;  // the rank has no row of it
  const auto* data = reinterpret_cast<const uint8_t*>(to);
  const auto moved = [&](const auto* part) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(part);
    return reinterpret_cast<decltype(part)>(data + (bytes - matrix->data));
  };
  if (matrix->scale != nullptr) matrix->scale = moved(matrix->scale);
  if (matrix->f32_scale != nullptr) matrix->f32_scale = moved(matrix->f32_scale);
  matrix->data = data;
}

}  // namespace

void ExpertTable::Rebase(ExpertWeights* expert, const ExpertSlots& slots, int64_t slot) {
  dsv4::Rebase(&expert->w1, slots.At(slot, 0));
  dsv4::Rebase(&expert->w3, slots.At(slot, 1));
  dsv4::Rebase(&expert->w2, slots.At(slot, 2));
}

absl::Status ExpertTable::Point(ExpertId id, int64_t slot) const {
  const Block& block = blocks_[static_cast<size_t>(id.block)];
  ExpertWeights& expert = block.experts[id.expert];
  Rebase(&expert, *slots_, slot);
  return device_->Upload(block.table + id.expert * static_cast<int64_t>(sizeof expert),
                         reinterpret_cast<const std::byte*>(&expert), sizeof expert);
}

}  // namespace dsv4
