// SPDX-License-Identifier: Apache-2.0
#include "lib/kv/block_pool.h"

#include "lib/base/error.h"

namespace dsv4 {

BlockPool::BlockPool(const char* what, int32_t blocks) : what_(what), references_(blocks, 0) {
  free_.reserve(blocks);
  for (int32_t block = blocks - 1; block >= 0; --block) free_.push_back(block);
}

absl::StatusOr<int32_t> BlockPool::Take() {
  std::lock_guard lock(mutex_);
  if (free_.empty()) {
    return OutOfBlocks("all ", references_.size(), " ", what_, " blocks of the cache are in use");
  }
  const int32_t block = free_.back();
  free_.pop_back();
  references_[block] = 1;
  return block;
}

void BlockPool::AddReference(int32_t block) {
  std::lock_guard lock(mutex_);
  ++references_[block];
}

void BlockPool::Release(int32_t block) {
  std::lock_guard lock(mutex_);
  if (--references_[block] == 0) free_.push_back(block);
}

int32_t BlockPool::free_blocks() const {
  std::lock_guard lock(mutex_);
  return static_cast<int32_t>(free_.size());
}

}  // namespace dsv4
