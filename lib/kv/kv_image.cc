// SPDX-License-Identifier: Apache-2.0
// A sequence as bytes: for each layer its window rows in reach, then its compressed rows and index
// keys (the data of all rows of a kind, each followed by its scales), then the state slot.
#include <algorithm>
#include <mutex>

#include "lib/base/checked_math.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/kv/kv_sequence.h"
#include "lib/kv/window_reach.h"

namespace dsv4 {
namespace {

// Calls part(block table index, slot, pool) for each row of an image, in its order.
template <class WindowRow, class GroupRow>
void ForEachRow(const KvCache& cache, int64_t length, WindowRow&& window_row,
                GroupRow&& group_row) {
  const KvCacheShape& shape = cache.shape();
  const int64_t layers = static_cast<int64_t>(shape.compress_ratios.size());
  for (int64_t i = 0; i < layers; ++i) {
    const LayerCache& layer = cache.layer(i);
    const int64_t first_slot = i >= layers - shape.mtp_layers ? 1 : 0;
    for (int64_t p = std::max(first_slot, FirstWindowRow(length)); p < length; ++p) {
      window_row(layer.window, p / kWindowBlockTokens, p % kWindowBlockTokens);
    }
    for (const RowPool& pool : {layer.groups, layer.index_keys}) {
      if (pool.row_bytes == 0) continue;
      const int64_t groups = length / shape.compress_ratios[static_cast<size_t>(i)];
      for (int64_t g = 0; g < groups; ++g) {
        group_row(pool, g / pool.rows_per_block, g % pool.rows_per_block);
      }
    }
  }
}

}  // namespace

int64_t KvSequence::ImageBytes(int64_t length) const {
  if (length == 0) return 0;
  const KvCacheShape& shape = cache_->shape();
  const int64_t layers = static_cast<int64_t>(shape.compress_ratios.size());
  const auto row_bytes = [](const RowPool& pool) {
    return pool.row_bytes == 0 ? 0 : pool.row_bytes + RowScaleBytes(pool.format);
  };
  int64_t bytes = cache_->state_bytes();
  for (int64_t i = 0; i < layers; ++i) {
    const LayerCache& layer = cache_->layer(i);
    const int64_t first_slot = i >= layers - shape.mtp_layers ? 1 : 0;
    const int64_t ratio = shape.compress_ratios[static_cast<size_t>(i)];
    bytes += (length - std::max(first_slot, FirstWindowRow(length))) * row_bytes(layer.window);
    if (ratio > 0)
      bytes += length / ratio * (row_bytes(layer.groups) + row_bytes(layer.index_keys));
  }
  return bytes;
}

absl::Status KvSequence::CheckRoomAfterReset(int32_t windows, int32_t groups) const {
  // What it holds alone becomes free, what the prefix cache holds beside it can be evicted.
  const auto check = [](const BlockPool& pool, const int32_t* first, const int32_t* last,
                        int32_t need) -> absl::Status {
    const auto gives_up = [&](int32_t block) {
      return pool.references(block) - pool.cached_references(block) == 1;
    };
    const auto room =
        pool.free_blocks() + pool.only_cached_blocks() + std::count_if(first, last, gives_up);
    if (need <= room) return absl::OkStatus();
    return OutOfBlocks("the saved sequence needs ", need, " ", pool.what(),
                       " blocks; the cache has ", room);
  };
  const auto check_all = [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(check(cache_->window_pool(), window_blocks_.data() + window_begin_,
                               window_blocks_.data() + window_end_, windows));
    DSV4_RETURN_IF_ERROR(check(cache_->group_pool(), group_blocks_.data(),
                               group_blocks_.data() + group_end_, groups));
    return check(cache_->state_pool(), &state_, &state_ + 1, 1);
  };
  absl::Status status = check_all();
  while (!status.ok() && cache_->DropSparePoint()) status = check_all();
  return status;
}

void KvSequence::WriteImage(absl::Span<std::byte> image) const {
  if (length_ == 0) return;
  std::byte* to = image.data();
  const auto write = [&](const std::byte* from, int64_t bytes) {
    cache_->device().Download(to, from, bytes).IgnoreError();
    to += bytes;
  };
  const auto row_of = [&](const std::vector<int32_t>& table) {
    return [&](const RowPool& pool, int64_t entry, int64_t slot) {
      write(pool.Row(table[entry], slot), pool.row_bytes);
      write(pool.Scales(table[entry], slot), RowScaleBytes(pool.format));
    };
  };
  ForEachRow(*cache_, length_, row_of(window_blocks_), row_of(group_blocks_));
  write(cache_->state(state_), cache_->state_bytes());
}

absl::Status KvSequence::ReadImage(int64_t length, absl::Span<const std::byte> image) {
  const int64_t context = cache_->shape().context_tokens;
  if (length < 0) return Corrupt("a saved sequence of ", length, " tokens");
  if (length > context) {
    return ContextFull("the saved sequence has ", length, " tokens; the context holds ", context);
  }
  if (static_cast<int64_t>(image.size()) != ImageBytes(length)) {
    return Corrupt("the rows of a saved sequence of ", length, " tokens take ", ImageBytes(length),
                   " bytes, not ", image.size());
  }
  std::lock_guard lock(cache_->mutex());
  const int64_t window_first = FirstWindowBlock(length);
  const auto window_need = static_cast<int32_t>(CeilDiv(length, kWindowBlockTokens) - window_first);
  const auto group_need = static_cast<int32_t>(CeilDiv(length, kGroupBlockTokens));
  DSV4_RETURN_IF_ERROR(CheckRoomAfterReset(window_need, group_need));
  Reset();
  if (length == 0) return absl::OkStatus();
  DSV4_RETURN_IF_ERROR(cache_->MakeRoom(window_need, group_need, 1));
  window_begin_ = window_first;
  window_end_ = window_first + window_need;
  group_end_ = group_need;
  for (int64_t i = window_begin_; i < window_end_; ++i) {
    window_blocks_[i] = cache_->window_pool().Take();
  }
  for (int64_t i = 0; i < group_end_; ++i) group_blocks_[i] = cache_->group_pool().Take();
  cache_->state_pool().Release(state_);
  state_ = cache_->state_pool().Take();
  length_ = length;
  publishes_ = false;

  const std::byte* from = image.data();
  const auto read = [&](std::byte* to, int64_t bytes) {
    cache_->device().Upload(to, from, bytes).IgnoreError();
    from += bytes;
  };
  const auto row_of = [&](const std::vector<int32_t>& table) {
    return [&](const RowPool& pool, int64_t entry, int64_t slot) {
      read(pool.Row(table[entry], slot), pool.row_bytes);
      read(pool.Scales(table[entry], slot), RowScaleBytes(pool.format));
    };
  };
  ForEachRow(*cache_, length, row_of(window_blocks_), row_of(group_blocks_));
  read(cache_->state(state_), cache_->state_bytes());
  return absl::OkStatus();
}

}  // namespace dsv4
