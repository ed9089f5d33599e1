// SPDX-License-Identifier: Apache-2.0
#include "lib/kv/block_pool.h"

namespace dsv4 {

BlockPool::BlockPool(const char* what, int32_t blocks)
    : what_(what), references_(static_cast<size_t>(blocks)) {
  free_.reserve(static_cast<size_t>(blocks));
  for (int32_t block = blocks - 1; block >= 0; --block) free_.push_back(block);
}

int32_t BlockPool::Take() {
  const int32_t block = free_.back();
  free_.pop_back();
  references_[block] = {.all = 1, .cached = 0};
  return block;
}

void BlockPool::Add(int32_t block, Holder holder) {
  only_cached_ -= only_cached(block);
  ++references_[block].all;
  references_[block].cached += holder == Holder::kPrefixCache;
  only_cached_ += only_cached(block);
}

void BlockPool::Release(int32_t block, Holder holder) {
  only_cached_ -= only_cached(block);
  --references_[block].all;
  references_[block].cached -= holder == Holder::kPrefixCache;
  only_cached_ += only_cached(block);
  if (references_[block].all == 0) free_.push_back(block);
}

}  // namespace dsv4
