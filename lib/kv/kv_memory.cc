// SPDX-License-Identifier: Apache-2.0
// A cache's memory on its devices: allocates and frees it, and copies the held blocks out and in.
#include <cstring>
#include <utility>
#include <vector>

#include "lib/base/status_macros.h"
#include "lib/kv/kv_cache.h"
#include "lib/kv/kv_sequence.h"

namespace dsv4 {
namespace {

std::vector<int32_t> HeldOf(const BlockPool& pool) {
  std::vector<int32_t> held;
  held.reserve(static_cast<size_t>(pool.size() - pool.free_blocks()));
  for (int32_t block = 0; block < pool.size(); ++block) {
    if (pool.references(block) > 0) held.push_back(block);
  }
  return held;
}

// Adds blocks of `stride` bytes from `base` on; those that lie one after another are one piece.
void AddPieces(std::byte* base, int64_t stride, const std::vector<int32_t>& blocks,
               std::vector<MemoryPiece>* pieces) {
  int32_t next = kNoBlock;
  for (const int32_t block : blocks) {
    if (block == next) {
      pieces->back().bytes += stride;
    } else {
      pieces->push_back({base + block * stride, stride});
    }
    next = block + 1;
  }
}

}  // namespace

absl::Status KvCache::Allocate(const KvPlan& plan, Memory* memory) {
  const int64_t bytes = plan.bytes.total();
  DSV4_ASSIGN_OR_RETURN(memory->buffer, memory->device->Allocate(bytes, "key/value cache"));
  std::byte* const begin = memory->buffer.data();
  memory->layers = plan.layers;
  for (LayerCache& layer : memory->layers) {
    for (RowPool* pool : {&layer.window, &layer.compressed, &layer.index_keys}) {
      if (pool->row_bytes > 0) pool->base = begin + reinterpret_cast<intptr_t>(pool->base);
    }
    for (StatePool* pool : {&layer.states, &layer.index_states}) {
      pool->base = begin + reinterpret_cast<intptr_t>(pool->base);
    }
  }
  memory->states = begin + bytes - plan.bytes.states;
  return absl::OkStatus();
}

HeldBlocks KvCache::held() const {
  MutexLock lock(&mutex_);
  HeldBlocks held{.windows = HeldOf(window_pool_),
                  .compressed = HeldOf(compressed_pool_),
                  .states = HeldOf(state_pool_)};
  held.bytes = static_cast<int64_t>(held.windows.size()) * plan_.window_block_bytes +
               static_cast<int64_t>(held.compressed.size()) * plan_.compressed_kv_block_bytes +
               static_cast<int64_t>(held.states.size()) * plan_.state_bytes;
  return held;
}

std::vector<MemoryPiece> KvCache::PiecesOf(const HeldBlocks& held, int rank) const {
  std::vector<MemoryPiece> pieces;
  const auto add = [&](const RowPool& pool, const std::vector<int32_t>& blocks) {
    if (pool.row_bytes == 0) return;
    AddPieces(pool.Row(0, 0), pool.block_stride_bytes, blocks, &pieces);
  };
  for (const LayerCache& layer : layers(rank)) {
    add(layer.window, held.windows);
    add(layer.compressed, held.compressed);
    add(layer.index_keys, held.compressed);
  }
  AddPieces(state(0, rank), plan_.state_bytes, held.states, &pieces);
  return pieces;
}

absl::Status KvCache::ReadHeld(const HeldBlocks& held, absl::Span<std::byte> to) const {
  return device().Gather(to.data(), PiecesOf(held, 0));
}

void KvCache::FreeMemory() {
  for (Memory& memory : memories_) {
    memory.buffer = Buffer();
    memory.layers.clear();
    memory.states = nullptr;
  }
}

absl::Status KvCache::AllocateMemory(absl::Span<Device* const> devices) {
  for (size_t rank = 0; rank < memories_.size(); ++rank) {
    Memory& memory = memories_[rank];
    memory.device = devices[rank];
    absl::Status status = Allocate(plan_, &memory);
    if (status.ok()) continue;
    FreeMemory();
    return status;
  }
  return absl::OkStatus();
}

void KvCache::ForgetRows() {
  MutexLock lock(&mutex_);
  for (KvSequence* const sequence : sequences_) {
    sequence->cache_->mutex()->AssertHeld();  // it is this cache's
    sequence->Reset();
  }
  while (prefixes_.EvictLeaf()) {
  }
}

absl::Status KvCache::WriteHeld(const HeldBlocks& held, absl::Span<const std::byte> from) {
  for (int rank = 0; rank < ranks(); ++rank) {
    DSV4_RETURN_IF_ERROR(device(rank).Scatter(PiecesOf(held, rank), from.data()));
    DSV4_RETURN_IF_ERROR(device(rank).Synchronize());
  }
  return absl::OkStatus();
}

}  // namespace dsv4
