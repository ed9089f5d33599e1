// SPDX-License-Identifier: Apache-2.0
#include "lib/kv/kv_cache.h"

#include <utility>

#include "lib/base/checked_math.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/kv/kv_sequence.h"

namespace dsv4 {
namespace {

// Blocks that hold the window of the next token and the rows of one step, at any alignment, and
// those that a restore point keeps.
int64_t WindowBlocksPerSequence(int64_t step_tokens) {
  const int64_t live = CeilDiv(kWindowTokens - 1 + step_tokens, kWindowBlockTokens) + 1;
  const int64_t restore = CeilDiv(kWindowTokens - 1, kWindowBlockTokens) + 1;
  return live + restore;
}

}  // namespace

KvCache::KvCache(const KvCacheShape& shape, int32_t window_blocks, int32_t group_blocks,
                 int32_t states)
    : shape_(shape),
      window_pool_("window", window_blocks),
      group_pool_("compressed-row", group_blocks),
      state_pool_("compressor-state", states) {}

absl::StatusOr<std::unique_ptr<KvCache>> KvCache::Create(const KvCacheShape& shape,
                                                         Device& device) {
  const int64_t sequences = shape.max_sequences;
  const int64_t window_blocks = sequences * WindowBlocksPerSequence(shape.max_step_tokens);
  // A sequence may leave its last block partly used.
  const int64_t group_blocks = CeilDiv(shape.cache_tokens, kGroupBlockTokens) + sequences;
  const int64_t states = sequences * KvSequence::kStateSlots;
  if (window_blocks > INT32_MAX || group_blocks > INT32_MAX) {
    return InvalidArgument("a cache of ", shape.cache_tokens, " tokens and ", sequences,
                           " sessions needs more than 2^31 blocks");
  }
  std::unique_ptr<KvCache> cache(new KvCache(shape, static_cast<int32_t>(window_blocks),
                                             static_cast<int32_t>(group_blocks),
                                             static_cast<int32_t>(states)));

  // First the offsets, as pointers from null; then the memory, and the pointers move to it.
  int64_t end = 0;
  const auto place = [&](RowFormat format, int64_t elements, int64_t rows_per_block, int64_t blocks,
                         int64_t* kind, int64_t* block_bytes) {
    const RowPool pool =
        RowPool::Of(reinterpret_cast<std::byte*>(end), format, elements, rows_per_block);
    end += pool.block_stride_bytes * blocks;
    *kind += pool.block_stride_bytes * blocks;
    *block_bytes += pool.block_stride_bytes;
    return pool;
  };
  for (const int32_t ratio : shape.compress_ratios) {
    LayerCache layer;
    layer.window = place(shape.row_format, kKvRowElements, kWindowBlockTokens, window_blocks,
                         &cache->bytes_.window, &cache->window_block_bytes_);
    if (ratio != 0) {
      layer.groups = place(shape.row_format, kKvRowElements, kGroupBlockTokens / ratio,
                           group_blocks, &cache->bytes_.groups, &cache->group_block_bytes_);
      layer.state_offset_bytes = cache->state_bytes_;
      cache->state_bytes_ += CompressorStateFloats(ratio, kKvRowElements) * int64_t{sizeof(float)};
    }
    if (ratio == kCsaRatio) {
      layer.index_keys =
          place(IndexKeyFormat(shape.row_format), kIndexKeyElements, kGroupBlockTokens / ratio,
                group_blocks, &cache->bytes_.index_keys, &cache->group_block_bytes_);
      layer.index_state_offset_bytes = cache->state_bytes_;
      cache->state_bytes_ +=
          CompressorStateFloats(ratio, kIndexKeyElements) * int64_t{sizeof(float)};
    }
    cache->layers_.push_back(layer);
  }
  const int64_t states_offset = end;
  cache->bytes_.states = cache->state_bytes_ * states;
  DSV4_ASSIGN_OR_RETURN(cache->memory_,
                        device.Allocate(end + cache->bytes_.states, "key/value cache"));
  std::byte* const memory = cache->memory_.data();
  for (LayerCache& layer : cache->layers_) {
    for (RowPool* pool : {&layer.window, &layer.groups, &layer.index_keys}) {
      if (pool->row_bytes > 0) pool->base = memory + reinterpret_cast<intptr_t>(pool->base);
    }
  }
  cache->states_ = memory + states_offset;
  return cache;
}

}  // namespace dsv4
