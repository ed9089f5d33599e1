// SPDX-License-Identifier: Apache-2.0
#include "lib/kv/kv_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lib/base/checked_math.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"

namespace dsv4 {
namespace {

constexpr int64_t kAlignment = 64;  // bytes, of states and of their parts
// Compressed KV blocks for each snapshot that the pools hold in addition to what open sequences may
// need. Restore points that are kSparseTokens apart take half of them at most.
constexpr int64_t kCompressedKvBlocksPerSnapshot = 8;

// Most states that a step writes at block boundaries: see KvSequence::Reserve.
int64_t BoundariesPerStep(int64_t step_tokens) {
  return std::min(
      step_tokens / kCompressedKvBlockTokens + 1,
      KvCache::kRecentTokens / kCompressedKvBlockTokens + 2 + step_tokens / KvCache::kSparseTokens);
}

// The most window blocks of a sequence while a step runs: from the first row that the last short
// step sees to the last draft's slot, at any alignment.
int64_t LiveWindowBlocks(const KvCacheShape& shape) {
  const int64_t verify_rows = shape.max_draft_tokens + 1;
  const int64_t tokens = kWindowTokens - 1 + KvCache::kShortStepRows +
                         std::max<int64_t>(shape.max_step_tokens, verify_rows) +
                         std::max<int64_t>(shape.max_draft_slots, verify_rows);
  return CeilDiv(tokens, kWindowBlockTokens) + 1;
}

}  // namespace

absl::StatusOr<KvPlan> PlanKvCache(const KvCacheShape& shape) {
  KvPlan plan;
  const int64_t sequences = shape.max_sequences, drafts = shape.max_draft_tokens;
  const int64_t state_writes = std::max(BoundariesPerStep(shape.max_step_tokens) + 1, drafts + 1);
  const int64_t recent_points = std::min(KvCache::kRecentTokens / kCompressedKvBlockTokens + 1,
                                         shape.context_tokens / kCompressedKvBlockTokens);
  // A sequence may leave its last block partly used.
  const int64_t compressed_kv_blocks =
      CeilDiv(shape.cache_tokens, kCompressedKvBlockTokens) + sequences;
  const int64_t snapshots = CeilDiv(compressed_kv_blocks, kCompressedKvBlocksPerSnapshot);
  const int64_t window_blocks =
      sequences * (LiveWindowBlocks(shape) + 2 * recent_points + 3 * KvCache::kTurnEnds) +
      2 * snapshots;
  // A sequence has the last step's states, this step's, and the points'. All share the empty state.
  const int64_t state_slots = sequences * (std::max<int64_t>(drafts + 2, 3) + state_writes +
                                           recent_points + KvCache::kTurnEnds) +
                              snapshots + 1;
  if (std::max({window_blocks, compressed_kv_blocks, state_slots}) > INT32_MAX) {
    return InvalidArgument("a cache of ", shape.cache_tokens, " tokens and ", sequences,
                           " sessions needs more than 2^31 blocks");
  }
  plan.window_blocks = static_cast<int32_t>(window_blocks);
  plan.compressed_kv_blocks = static_cast<int32_t>(compressed_kv_blocks);
  plan.state_slots = static_cast<int32_t>(state_slots);
  plan.state_writes_per_step = static_cast<int32_t>(state_writes);
  plan.restore_points =
      static_cast<int32_t>(KvCache::kRecentTokens / kCompressedKvBlockTokens + 1 +
                           KvCache::kMostTurnEnds + shape.context_tokens / KvCache::kSparseTokens);
  plan.host_bytes = PrefixCache::HostBytes(plan.compressed_kv_blocks);

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
                         &plan.bytes.window, &plan.window_block_bytes);
    if (ratio != 0) {
      layer.compressed =
          place(shape.row_format, kKvRowElements, kCompressedKvBlockTokens / ratio,
                compressed_kv_blocks, &plan.bytes.compressed, &plan.compressed_kv_block_bytes);
      layer.states.base = reinterpret_cast<std::byte*>(plan.state_bytes);
      plan.state_bytes += CompressorStateFloats(ratio, kKvRowElements) * int64_t{sizeof(float)};
    }
    if (ratio == kCsaRatio) {
      layer.index_keys =
          place(shape.key_format, kIndexKeyElements, kCompressedKvBlockTokens / ratio,
                compressed_kv_blocks, &plan.bytes.index_keys, &plan.compressed_kv_block_bytes);
      layer.index_states.base = reinterpret_cast<std::byte*>(plan.state_bytes);
      plan.state_bytes += CompressorStateFloats(ratio, kIndexKeyElements) * int64_t{sizeof(float)};
    }
    plan.layers.push_back(layer);
  }
  plan.streams_offset_bytes = RoundUp(plan.state_bytes, kAlignment);
  plan.state_bytes = RoundUp(plan.streams_offset_bytes + shape.streams_bytes, kAlignment);
  plan.bytes.states = plan.state_bytes * state_slots;
  // State slots lie behind all rows.
  for (LayerCache& layer : plan.layers) {
    for (StatePool* pool : {&layer.states, &layer.index_states}) {
      pool->base = reinterpret_cast<std::byte*>(reinterpret_cast<intptr_t>(pool->base) + end);
      pool->slot_stride_bytes = plan.state_bytes;
    }
  }
  return plan;
}

KvCache::KvCache(const KvCacheShape& shape, KvPlan plan, std::vector<Memory> memories)
    : shape_(shape),
      plan_(std::move(plan)),
      memories_(std::move(memories)),
      window_pool_("window", plan_.window_blocks),
      compressed_pool_("compressed-row", plan_.compressed_kv_blocks),
      state_pool_("compressor-state", plan_.state_slots),
      prefixes_(&window_pool_, &compressed_pool_, &state_pool_) {
  sequences_.reserve(static_cast<size_t>(shape_.max_sequences));
}

absl::StatusOr<std::unique_ptr<KvCache>> KvCache::Create(const KvCacheShape& shape,
                                                         absl::Span<Device* const> devices) {
  DSV4_ASSIGN_OR_RETURN(KvPlan plan, PlanKvCache(shape));
  std::vector<Memory> memories(devices.size());
  for (size_t rank = 0; rank < devices.size(); ++rank) {
    memories[rank].device = devices[rank];
    // Before the host's tables, which grow with it.
    DSV4_RETURN_IF_ERROR(Allocate(plan, &memories[rank]));
  }
  std::unique_ptr<KvCache> cache(new KvCache(shape, std::move(plan), std::move(memories)));
  MutexLock lock(&cache->mutex_);
  cache->empty_state_ = cache->state_pool_.Take();
  return cache;
}

KvUse KvCache::use() const {
  if (left_behind()) return {};
  MutexLock lock(&mutex_);
  const auto of = [](const BlockPool& pool) {
    return PoolUse{
        .size = pool.size(), .free = pool.free_blocks(), .cached = pool.only_cached_blocks()};
  };
  return {.windows = of(window_pool_),
          .compressed = of(compressed_pool_),
          .states = of(state_pool_),
          .sequences = static_cast<int32_t>(sequences_.size())};
}

absl::Status KvCache::MakeRoom(int32_t windows, int32_t compressed, int32_t states) {
  const std::pair<const BlockPool*, int32_t> needs[] = {
      {&window_pool_, windows}, {&compressed_pool_, compressed}, {&state_pool_, states}};
  for (const auto& [pool, need] : needs) {
    const auto lacking = [pool = pool, need = need] {
      return need > pool->free_blocks() + pool->only_cached_blocks();
    };
    while (pool != &compressed_pool_ && lacking() && DropSparePoint()) {
    }
    if (lacking()) {
      return OutOfBlocks("the cache has no ", need, " more ", pool->what(), " blocks: of ",
                         pool->size(), ", ", pool->free_blocks(), " are free and ",
                         pool->only_cached_blocks(), " can be evicted");
    }
  }
  while (compressed_pool_.free_blocks() < compressed && prefixes_.EvictLeaf()) {
  }
  for (const auto& [pool, need] : needs) {
    while (pool->free_blocks() < need && pool != &compressed_pool_ &&
           (prefixes_.EvictSnapshot(*pool, false) || DropSparePoint() ||
            prefixes_.EvictSnapshot(*pool, true))) {
    }
    if (pool->free_blocks() < need)
      return Internal("the count of free ", pool->what(), " blocks is wrong");
  }
  return absl::OkStatus();
}

void KvCache::CopyBlock(const Memory& memory, const RowPool& pool, int32_t from, int32_t to) {
  if (pool.row_bytes == 0) return;
  memory.device->Copy(pool.Row(to, 0), pool.Row(from, 0), pool.block_stride_bytes).IgnoreError();
}

void KvCache::CopyWindowBlock(int32_t from, int32_t to) {
  if (writes_ != nullptr) writes_->CopyWindowBlock(from, to);
  for (const Memory& memory : memories_) {
    for (const LayerCache& layer : memory.layers) CopyBlock(memory, layer.window, from, to);
  }
}

void KvCache::CopyCompressedKvBlock(int32_t from, int32_t to) {
  if (writes_ != nullptr) writes_->CopyCompressedKvBlock(from, to);
  for (const Memory& memory : memories_) {
    for (const LayerCache& layer : memory.layers) {
      CopyBlock(memory, layer.compressed, from, to);
      CopyBlock(memory, layer.index_keys, from, to);
    }
  }
}

absl::Status KvCache::OpenSequence(KvSequence* sequence) {
  if (static_cast<int32_t>(sequences_.size()) == shape_.max_sequences) {
    return OutOfBlocks("all ", sequences_.size(), " sequences of the cache are open");
  }
  sequences_.push_back(sequence);
  return absl::OkStatus();
}

void KvCache::MoveSequence(const KvSequence* from, KvSequence* to) {
  *std::find(sequences_.begin(), sequences_.end(), from) = to;
}

void KvCache::CloseSequence(const KvSequence* sequence) {
  sequences_.erase(std::find(sequences_.begin(), sequences_.end(), sequence));
}

}  // namespace dsv4
