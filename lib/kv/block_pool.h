// SPDX-License-Identifier: Apache-2.0
// Reference counts of a fixed number of block ids. The pool distinguishes references of the prefix
// cache from those of sequences. It does not know the blocks' memory. Guarded by the mutex of the
// cache that owns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dsv4 {

class BlockPool {
 public:
  enum class Holder : int32_t { kSequence, kPrefixCache };

  // `what` names the blocks in messages, e.g. "window".
  BlockPool(const char* what, int32_t blocks);

  // Takes the free block that was released last, with one reference of a sequence. REQUIRES: a
  // block is free.
  int32_t Take();
  // REQUIRES: the block is held.
  void Add(int32_t block, Holder holder = Holder::kSequence);
  // Drops one reference of `holder`. Without references the block is free.
  void Release(int32_t block, Holder holder = Holder::kSequence);

  // True if the block has more than one reference. Its bytes must not change then.
  bool shared(int32_t block) const { return references_[block].all > 1; }
  // True if only the prefix cache has references.
  bool only_cached(int32_t block) const {
    return references_[block].all > 0 && references_[block].all == references_[block].cached;
  }
  int32_t references(int32_t block) const { return references_[block].all; }
  int32_t cached_references(int32_t block) const { return references_[block].cached; }

  const char* what() const { return what_; }
  int32_t size() const { return static_cast<int32_t>(references_.size()); }
  int32_t free_blocks() const { return static_cast<int32_t>(free_.size()); }
  int32_t only_cached_blocks() const { return only_cached_; }

 private:
  struct References {
    int32_t all = 0, cached = 0;
  };

  const char* what_;
  std::vector<References> references_;  // [size]
  std::vector<int32_t> free_;           // a stack, reserved to size
  int32_t only_cached_ = 0;
};

}  // namespace dsv4
