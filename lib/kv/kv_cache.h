// SPDX-License-Identifier: Apache-2.0
// The memory of all key/value rows and compressor states of an engine, planned and allocated once:
// where each layer's rows lie in a block (kernels/op/kv_layout.h holds the bytes of a row), the two
// block pools, and the state slots. Which blocks belong to whom is KvSequence's.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/op/kv_layout.h"
#include "lib/device/device.h"
#include "lib/kv/block_pool.h"

namespace dsv4 {

struct KvCacheShape {
  std::vector<int32_t> compress_ratios;     // one per layer, MTP included
  RowFormat row_format = RowFormat::kBf16;  // of window and compressed rows; keys: IndexKeyFormat
  int64_t context_tokens = 0;               // longest sequence
  int64_t cache_tokens = 0;                 // compressed rows of all sequences together
  int32_t max_sequences = 0;
  int32_t max_step_tokens = 0;  // of one sequence in one step
};

// One layer's place in the cache.
struct LayerCache {
  RowPool window;
  RowPool groups;                        // ratio 4 or 128
  RowPool index_keys;                    // ratio 4
  int64_t state_offset_bytes = 0;        // of its compressor in a state slot
  int64_t index_state_offset_bytes = 0;  // of its indexer's compressor
};

struct KvCacheBytes {
  int64_t window = 0, groups = 0, index_keys = 0, states = 0;
  int64_t total() const { return window + groups + index_keys + states; }
};

class KvCache {
 public:
  static absl::StatusOr<std::unique_ptr<KvCache>> Create(const KvCacheShape& shape, Device& device);

  const KvCacheShape& shape() const { return shape_; }
  const KvCacheBytes& bytes() const { return bytes_; }
  const LayerCache& layer(int64_t layer) const { return layers_[static_cast<size_t>(layer)]; }

  BlockPool& window_pool() { return window_pool_; }
  BlockPool& group_pool() { return group_pool_; }
  BlockPool& state_pool() { return state_pool_; }
  std::byte* state(int32_t slot) const { return states_ + int64_t{slot} * state_bytes_; }
  int64_t state_bytes() const { return state_bytes_; }
  // Bytes that one block holds over all layers.
  int64_t window_block_bytes() const { return window_block_bytes_; }
  int64_t group_block_bytes() const { return group_block_bytes_; }

 private:
  KvCache(const KvCacheShape& shape, int32_t window_blocks, int32_t group_blocks, int32_t states);

  KvCacheShape shape_;
  KvCacheBytes bytes_;
  std::vector<LayerCache> layers_;
  int64_t state_bytes_ = 0, window_block_bytes_ = 0, group_block_bytes_ = 0;
  Buffer memory_;
  std::byte* states_ = nullptr;
  BlockPool window_pool_, group_pool_, state_pool_;
};

}  // namespace dsv4
