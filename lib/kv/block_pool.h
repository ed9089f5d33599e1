// SPDX-License-Identifier: Apache-2.0
// Who owns which block: a fixed number of block ids with reference counts. It knows nothing of the
// memory behind them. Thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"

namespace dsv4 {

class BlockPool {
 public:
  // `what` names the blocks in messages, e.g. "window".
  BlockPool(const char* what, int32_t blocks);

  // A free block with one reference, lowest id first released last. OutOfBlocks when none is free.
  absl::StatusOr<int32_t> Take();
  void AddReference(int32_t block);
  // Gives one reference back; the block is free when none is left.
  void Release(int32_t block);

  int32_t size() const { return static_cast<int32_t>(references_.size()); }
  int32_t free_blocks() const;

 private:
  const char* what_;
  mutable std::mutex mutex_;
  std::vector<int32_t> references_;  // [size]
  std::vector<int32_t> free_;        // a stack, reserved to size
};

}  // namespace dsv4
