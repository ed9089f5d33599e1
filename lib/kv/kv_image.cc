// SPDX-License-Identifier: Apache-2.0
// A sequence as bytes: for each layer its window rows in reach, then its compressed rows and index
// keys (the data of all rows of a kind, each followed by its scales), then the state slot. Rows of
// a device with memory of its own move many blocks at a time.
#include <algorithm>
#include <cstring>

#include "lib/base/checked_math.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/kv/kv_sequence.h"
#include "lib/kv/window_reach.h"

namespace dsv4 {
namespace {

constexpr int64_t kBatchBytes = int64_t{4} << 20;  // more than a block of one layer

// Rows of one layer and kind that lie in one block, one after another.
struct RowRun {
  RowPool pool;
  int32_t block = kNoBlock;
  int64_t first = 0, count = 0;  // slots
  std::byte* data() const { return pool.Row(block, first); }
  std::byte* scales() const { return pool.Scales(block, first); }
  int64_t data_bytes() const { return count * pool.row_bytes; }
  int64_t scale_bytes() const { return count * RowScaleBytes(pool.format); }
  int64_t bytes() const { return data_bytes() + scale_bytes(); }
};

// Calls visit(run) for all rows of an image of `length` tokens, where `rank` has them, in the
// image's order, until one fails.
template <class Visit>
absl::Status ForEachRun(const KvCache& cache, int rank, int64_t length,
                        absl::Span<const int32_t> windows, absl::Span<const int32_t> compressed,
                        Visit&& visit) {
  const KvCacheShape& shape = cache.shape();
  const int64_t layers = static_cast<int64_t>(shape.compress_ratios.size());
  const auto visit_rows = [&](const RowPool& pool, absl::Span<const int32_t> table, int64_t begin,
                              int64_t end) -> absl::Status {
    while (begin < end) {
      RowRun run{.pool = pool,
                 .block = table[static_cast<size_t>(begin / pool.rows_per_block)],
                 .first = begin % pool.rows_per_block};
      run.count = std::min(end - begin, pool.rows_per_block - run.first);
      DSV4_RETURN_IF_ERROR(visit(run));
      begin += run.count;
    }
    return absl::OkStatus();
  };
  for (int64_t i = 0; i < layers; ++i) {
    const LayerCache& layer = cache.layer(i, rank);
    const int64_t first_slot = i >= layers - shape.mtp_layers ? 1 : 0;
    DSV4_RETURN_IF_ERROR(
        visit_rows(layer.window, windows, std::max(first_slot, FirstWindowRow(length)), length));
    for (const RowPool& pool : {layer.compressed, layer.index_keys}) {
      if (pool.row_bytes == 0) continue;
      const int64_t ratio = shape.compress_ratios[static_cast<size_t>(i)];
      DSV4_RETURN_IF_ERROR(visit_rows(pool, compressed, 0, length / ratio));
    }
  }
  return absl::OkStatus();
}

// How much of a RunBatch an image takes at most.
class BatchSize {
 public:
  void Add(const RowRun& run) {
    if (bytes_ + run.bytes() > kBatchBytes) bytes_ = runs_ = 0;
    bytes_ += run.bytes();
    ++runs_;
    most_bytes_ = std::max(most_bytes_, bytes_);
    most_runs_ = std::max(most_runs_, runs_);
  }
  int64_t most_bytes() const { return most_bytes_; }
  int64_t most_runs() const { return most_runs_; }

 private:
  int64_t bytes_ = 0, runs_ = 0, most_bytes_ = 0, most_runs_ = 0;
};

// A batch of runs to copy between the cache and an image. Runs that the host cannot read in place
// go through the batch's memory: each run's data, then its scales.
class RunBatch {
 public:
  // Allocates nothing from here on.
  RunBatch(const Device& device, const BatchSize& size) : direct_(device.host_memory()) {
    runs_.reserve(static_cast<size_t>(size.most_runs()));
    if (direct_) return;
    pieces_.reserve(2 * runs_.capacity());
    memory_.resize(static_cast<size_t>(size.most_bytes()));
  }

  bool HasRoomFor(const RowRun& run) const { return bytes_ + run.bytes() <= kBatchBytes; }
  void Add(const RowRun& run) {
    runs_.push_back(run);
    bytes_ += run.bytes();
    if (direct_) return;
    pieces_.push_back({run.data(), run.data_bytes()});
    pieces_.push_back({run.scales(), run.scale_bytes()});
  }
  void Clear() {
    runs_.clear();
    pieces_.clear();
    bytes_ = 0;
  }
  std::byte* memory() { return memory_.data(); }
  absl::Span<const MemoryPiece> pieces() const { return pieces_; }

  // Calls visit(data, data bytes, scales, scale bytes) for each row, in order.
  template <class Visit>
  void ForEachRow(Visit&& visit) {
    std::byte* next = memory_.data();
    for (const RowRun& run : runs_) {
      std::byte* data = direct_ ? run.data() : next;
      std::byte* scales = direct_ ? run.scales() : next + run.data_bytes();
      next += direct_ ? 0 : run.bytes();
      const int64_t data_bytes = run.pool.row_bytes, scale_bytes = RowScaleBytes(run.pool.format);
      for (int64_t row = 0; row < run.count; ++row) {
        visit(data + row * data_bytes, static_cast<size_t>(data_bytes), scales + row * scale_bytes,
              static_cast<size_t>(scale_bytes));
      }
    }
  }

 private:
  const bool direct_;
  int64_t bytes_ = 0;
  std::vector<RowRun> runs_;
  std::vector<MemoryPiece> pieces_;
  std::vector<std::byte> memory_;
};

BatchSize BatchSizeOf(const KvCache& cache, int64_t length, absl::Span<const int32_t> windows,
                      absl::Span<const int32_t> compressed) {
  BatchSize size;
  (void)ForEachRun(cache, 0, length, windows, compressed, [&](const RowRun& run) {
    size.Add(run);
    return absl::OkStatus();
  });
  return size;
}

// Writes an image's rows and state to its blocks of a rank.
absl::Status PutRows(const KvCache& cache, int rank, const ImageBlocks& blocks,
                     absl::Span<const std::byte> image, RunBatch* batch) {
  Device& device = cache.device(rank);
  const std::byte* from = image.data();
  const auto put = [&]() -> absl::Status {
    batch->ForEachRow(
        [&](std::byte* data, size_t data_bytes, std::byte* scales, size_t scale_bytes) {
          std::memcpy(data, from, data_bytes);
          std::memcpy(scales, from + data_bytes, scale_bytes);
          from += data_bytes + scale_bytes;
        });
    DSV4_RETURN_IF_ERROR(device.Scatter(batch->pieces(), batch->memory()));
    batch->Clear();
    return absl::OkStatus();
  };
  DSV4_RETURN_IF_ERROR(ForEachRun(cache, rank, blocks.length, blocks.windows, blocks.compressed,
                                  [&](const RowRun& run) -> absl::Status {
                                    if (!batch->HasRoomFor(run)) DSV4_RETURN_IF_ERROR(put());
                                    batch->Add(run);
                                    return absl::OkStatus();
                                  }));
  DSV4_RETURN_IF_ERROR(put());
  return device.Upload(cache.state(blocks.state, rank), from, cache.state_bytes());
}

}  // namespace

int64_t KvSequence::ImagePosition(int64_t tokens) const {
  if (tokens >= length_ || !short_step_) return length_;
  int64_t position = length_;
  for (const StepState& kept : step_states_) {
    if (kept.position <= tokens) position = kept.position;
  }
  return position;
}

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
      bytes += length / ratio * (row_bytes(layer.compressed) + row_bytes(layer.index_keys));
  }
  return bytes;
}

absl::Status KvSequence::CheckRoomAfterReset(int32_t windows, int32_t compressed) const {
  // Blocks with no other owner become free. Blocks that the prefix cache shares can be evicted.
  const auto check = [](const BlockPool& pool, const int32_t* first, const int32_t* last,
                        int32_t need) -> absl::Status {
    const auto gives_up = [&](int32_t block) {
      return pool.references(block) - pool.cached_references(block) == 1;
    };
    const auto room =
        pool.free_blocks() + pool.only_cached_blocks() + std::count_if(first, last, gives_up);
    if (need <= room) return absl::OkStatus();
    return OutOfBlocks("the saved session needs ", need, " ", pool.what(),
                       " blocks; the cache has ", room);
  };
  const auto check_all = [&]() -> absl::Status {
    cache_->mutex()->AssertHeld();
    DSV4_RETURN_IF_ERROR(check(cache_->window_pool(), window_blocks_.data() + window_begin_,
                               window_blocks_.data() + window_end_, windows));
    DSV4_RETURN_IF_ERROR(check(cache_->compressed_pool(), compressed_kv_blocks_.data(),
                               compressed_kv_blocks_.data() + compressed_end_, compressed));
    return check(cache_->state_pool(), &state_, &state_ + 1, 1);
  };
  absl::Status status = check_all();
  while (!status.ok() && cache_->DropSparePoint()) status = check_all();
  return status;
}

absl::Status KvSequence::WriteImage(int64_t length, absl::Span<std::byte> image) const {
  if (length == 0) return absl::OkStatus();
  int32_t state = state_;
  for (const StepState& kept : step_states_) {
    if (length < length_ && kept.position == length) state = kept.state;
  }
  Device& device = cache_->device();
  std::byte* to = image.data();
  RunBatch batch(device, BatchSizeOf(*cache_, length, window_blocks_, compressed_kv_blocks_));
  const auto write = [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(device.Gather(batch.memory(), batch.pieces()));
    batch.ForEachRow(
        [&](const std::byte* data, size_t data_bytes, const std::byte* scales, size_t scale_bytes) {
          std::memcpy(to, data, data_bytes);
          std::memcpy(to + data_bytes, scales, scale_bytes);
          to += data_bytes + scale_bytes;
        });
    batch.Clear();
    return absl::OkStatus();
  };
  DSV4_RETURN_IF_ERROR(ForEachRun(*cache_, 0, length, window_blocks_, compressed_kv_blocks_,
                                  [&](const RowRun& run) -> absl::Status {
                                    if (!batch.HasRoomFor(run)) DSV4_RETURN_IF_ERROR(write());
                                    batch.Add(run);
                                    return absl::OkStatus();
                                  }));
  DSV4_RETURN_IF_ERROR(write());
  return device.Download(to, cache_->state(state), cache_->state_bytes());
}

absl::Status KvSequence::ReadImage(int64_t length, absl::Span<const std::byte> image) {
  const int64_t context = cache_->shape().context_tokens;
  if (length < 0) return Corrupt("the saved session has ", length, " tokens");
  if (length > context) {
    return ContextFull("the saved session has ", length, " tokens; the context holds ", context);
  }
  if (static_cast<int64_t>(image.size()) != ImageBytes(length)) {
    return Corrupt("the cache rows of a saved session of ", length, " tokens take ",
                   ImageBytes(length), " bytes, not ", image.size());
  }
  RunBatch batch(cache_->device(),
                 BatchSizeOf(*cache_, length, window_blocks_, compressed_kv_blocks_));
  MutexLock lock(cache_->mutex());
  const int64_t window_first = FirstWindowBlock(length);
  const auto window_need = static_cast<int32_t>(CeilDiv(length, kWindowBlockTokens) - window_first);
  const auto compressed_need = static_cast<int32_t>(CeilDiv(length, kCompressedKvBlockTokens));
  DSV4_RETURN_IF_ERROR(CheckRoomAfterReset(window_need, compressed_need));
  Reset();
  if (length == 0) return absl::OkStatus();
  DSV4_RETURN_IF_ERROR(cache_->MakeRoom(window_need, compressed_need, 1));
  window_begin_ = window_first;
  window_end_ = window_first + window_need;
  compressed_end_ = compressed_need;
  for (int64_t i = window_begin_; i < window_end_; ++i) {
    window_blocks_[i] = cache_->window_pool().Take();
  }
  for (int64_t i = 0; i < compressed_end_; ++i)
    compressed_kv_blocks_[i] = cache_->compressed_pool().Take();
  cache_->state_pool().Release(state_);
  state_ = cache_->state_pool().Take();
  length_ = length;
  publishes_ = false;

  const ImageBlocks blocks{
      .length = length,
      .windows = absl::MakeConstSpan(window_blocks_).subspan(0, static_cast<size_t>(window_end_)),
      .compressed = absl::MakeConstSpan(compressed_kv_blocks_)
                        .subspan(0, static_cast<size_t>(compressed_end_)),
      .state = state_};
  if (cache_->writes() != nullptr) DSV4_RETURN_IF_ERROR(cache_->writes()->PutImage(blocks, image));
  for (int rank = 0; rank < cache_->ranks(); ++rank) {
    DSV4_RETURN_IF_ERROR(PutRows(*cache_, rank, blocks, image, &batch));
  }
  return absl::OkStatus();
}

absl::Status KvCache::PutImage(const ImageBlocks& blocks, absl::Span<const std::byte> image) {
  RunBatch batch(device(), BatchSizeOf(*this, blocks.length, blocks.windows, blocks.compressed));
  for (int rank = 0; rank < ranks(); ++rank) {
    DSV4_RETURN_IF_ERROR(PutRows(*this, rank, blocks, image, &batch));
  }
  return absl::OkStatus();
}

}  // namespace dsv4
