// SPDX-License-Identifier: Apache-2.0
#include "lib/experts/pinned_blocks.h"

#include <algorithm>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/status_macros.h"

namespace dsv4 {

void PinnedBlocks::Restart() {
  for (Block& block : blocks_) block.taken = false;
  refused_ = false;
}

absl::StatusOr<std::byte*> PinnedBlocks::Take(Device* device, int64_t bytes,
                                              absl::string_view purpose) {
  Block* best = nullptr;
  for (Block& block : blocks_) {
    if (block.taken || block.device != device || block.memory.size_bytes() < bytes) continue;
    if (best == nullptr || block.memory.size_bytes() < best->memory.size_bytes()) best = &block;
  }
  if (best == nullptr) {
    absl::StatusOr<Buffer> memory = device->AllocateHost(bytes, purpose);
    refused_ = refused_ || IsOutOfHostMemory(memory.status());
    DSV4_RETURN_IF_ERROR(memory.status());
    best = &blocks_.emplace_back(Block{device, *std::move(memory)});
  }
  best->taken = true;
  return best->memory.data();
}

void PinnedBlocks::Keep(int64_t enough) {
  size_t kept = 0;
  for (int64_t sum = 0; kept < blocks_.size() && sum < enough; ++kept) {
    sum += blocks_[kept].memory.size_bytes();
  }
  blocks_.erase(blocks_.begin() + static_cast<ptrdiff_t>(kept), blocks_.end());
}

void PinnedBlocks::FreeUntaken() {
  blocks_.erase(std::remove_if(blocks_.begin(), blocks_.end(),
                               [](const Block& block) { return !block.taken; }),
                blocks_.end());
}

int64_t PinnedBlocks::bytes() const {
  int64_t sum = 0;
  for (const Block& block : blocks_) sum += block.memory.size_bytes();
  return sum;
}

}  // namespace dsv4
