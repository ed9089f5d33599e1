// SPDX-License-Identifier: Apache-2.0
// The memory of all key/value rows and compressor states of an engine, planned exactly and
// allocated once. Every device has all rows, under the same block numbers. This file has the place
// of each layer's rows in a block (kernels/op/kv_layout.h has the bytes of a row), the pools of
// window blocks, compressed KV blocks and state slots, and the prefix cache. KvSequence records
// which blocks belong to a sequence.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/op/kv_layout.h"
#include "lib/base/mutex.h"
#include "lib/device/device.h"
#include "lib/kv/block_pool.h"
#include "lib/kv/prefix_cache.h"

namespace dsv4 {

class KvSequence;

struct KvCacheShape {
  std::vector<int32_t> compress_ratios;         // one per layer, MTP layers last
  int32_t mtp_layers = 0;                       // the last of them; their slot 0 has no row
  RowFormat row_format = RowFormat::kBf16;      // of window and compressed rows
  RowFormat key_format = RowFormat::kIndexFp4;  // of index keys
  int64_t streams_bytes = 0;   // residual streams of one row, kept in every state slot; 0: none
  int64_t context_tokens = 0;  // longest sequence
  int64_t cache_tokens = 0;    // compressed rows of all sequences together
  int32_t max_sequences = 0;
  int32_t max_step_tokens = 0;   // of one sequence in one step
  int32_t max_draft_tokens = 0;  // a verify step has one row more
  int32_t max_draft_slots = 0;   // slots behind a step's rows for drafts, if more than the rows
};

// One layer's place in the cache.
struct LayerCache {
  RowPool window;
  RowPool compressed;      // ratio 4 or 128
  RowPool index_keys;      // ratio 4
  StatePool states;        // its compressor's, ratio 4 or 128
  StatePool index_states;  // its indexer's compressor's, ratio 4
};

struct KvCacheBytes {
  int64_t window = 0, compressed = 0, index_keys = 0, states = 0;  // device memory
  int64_t total() const { return window + compressed + index_keys + states; }
};

// The sizes of a cache; no pool ever grows.
struct KvPlan {
  int32_t window_blocks = 0;         // 64 tokens of every layer's window
  int32_t compressed_kv_blocks = 0;  // 256 tokens of every layer's compressed rows and index keys
  int32_t state_slots = 0;           // compressor states of all layers, then the streams
  int64_t window_block_bytes = 0, compressed_kv_block_bytes = 0,
          state_bytes = 0;            // over all layers
  int64_t streams_offset_bytes = 0;   // in a state slot
  int32_t state_writes_per_step = 0;  // of one sequence, at most
  int32_t restore_points = 0;         // most that a sequence holds
  std::vector<LayerCache> layers;     // bases count from the start of the memory
  KvCacheBytes bytes;
  int64_t host_bytes = 0;  // tables of the prefix cache, in host memory
};

// Errors: InvalidArgument if the shape needs 2^31 blocks of a kind.
absl::StatusOr<KvPlan> PlanKvCache(const KvCacheShape& shape);

// The blocks of an image (kv_image.cc), in the order of a sequence.
struct ImageBlocks {
  int64_t length = 0;                    // tokens
  absl::Span<const int32_t> windows;     // entry p / 64, up to the last block
  absl::Span<const int32_t> compressed;  // entry p / 256
  int32_t state = kNoBlock;
};

// Blocks and state slots that sequences or the prefix cache hold.
struct HeldBlocks {
  std::vector<int32_t> windows, compressed, states;  // ascending
  int64_t bytes = 0;                                 // of their rows and states, over all layers
};

// Receives every write to the cache's memories that is not part of a step, to repeat it on ranks in
// other processes. Guarded by KvCache::mutex().
class KvWrites {
 public:
  virtual ~KvWrites() = default;
  virtual void CopyWindowBlock(int32_t from, int32_t to) = 0;
  virtual void CopyCompressedKvBlock(int32_t from, int32_t to) = 0;
  virtual absl::Status PutImage(const ImageBlocks& blocks, absl::Span<const std::byte> image) = 0;
};

// Blocks of each pool: free, held by the prefix cache alone (which gives them up when a sequence
// needs them), and held by sequences.
struct PoolUse {
  int32_t size = 0, free = 0, cached = 0;
  int32_t held() const { return size - free - cached; }
};
struct KvUse {
  PoolUse windows, compressed, states;
  int32_t sequences = 0;  // open
};

class KvCache {
 public:
  // What sequences keep:
  static constexpr int64_t kRecentTokens = 2048;  // with a restore point at every multiple of 256
  static constexpr int64_t kSparseTokens = 4096;  // before them: at every multiple of this
  static constexpr int32_t kTurnEnds = 8;         // the last ones are promised, more are spare,
  static constexpr int32_t kMostTurnEnds = 1024;  // up to this
  static constexpr int32_t kShortStepRows = 8;    // steps of so few rows can be undone row by row

  // `devices`: of the ranks, in their order.
  static absl::StatusOr<std::unique_ptr<KvCache>> Create(const KvCacheShape& shape,
                                                         absl::Span<Device* const> devices);
  static absl::StatusOr<std::unique_ptr<KvCache>> Create(const KvCacheShape& shape,
                                                         Device& device) {
    Device* const one = &device;
    return Create(shape, absl::MakeConstSpan(&one, 1));
  }

  const KvCacheShape& shape() const { return shape_; }
  const KvPlan& plan() const { return plan_; }
  const KvCacheBytes& bytes() const { return plan_.bytes; }  // on one device
  int ranks() const { return static_cast<int>(memories_.size()); }
  // The functions below are about one rank: `rank`, by default the first.
  absl::Span<const LayerCache> layers(int rank = 0) const { return memory(rank).layers; }
  const LayerCache& layer(int64_t layer, int rank = 0) const {
    return memory(rank).layers[static_cast<size_t>(layer)];
  }
  std::byte* state(int32_t slot, int rank = 0) const {
    return memory(rank).states + int64_t{slot} * plan_.state_bytes;
  }
  int64_t state_bytes() const { return plan_.state_bytes; }
  // The streams that each state slot keeps of its last row.
  StatePool streams(int rank = 0) const {
    return {state(0, rank) + plan_.streams_offset_bytes, plan_.state_bytes};
  }
  KvUse use() const;
  // From here on sequences can only be closed, and nothing waits for the mutex: a thread that was
  // left behind may hold it.
  void LeaveBehind() { left_behind_ = true; }
  bool left_behind() const { return left_behind_; }

  // For KvSequence: all below is guarded by mutex(). One lock covers a whole change of a sequence,
  // so that what is counted as free is still free when it is taken.
  Mutex* mutex() const ABSL_LOCK_RETURNED(mutex_) { return &mutex_; }
  BlockPool& window_pool() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return window_pool_; }
  BlockPool& compressed_pool() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return compressed_pool_; }
  BlockPool& state_pool() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return state_pool_; }
  PrefixCache& prefixes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return prefixes_; }
  // The state before the first token: zeros. The cache itself holds it.
  int32_t empty_state() const { return empty_state_; }
  // Frees blocks until so many are free in each pool: first snapshots of generated text that only
  // the prefix cache holds, then spare restore points, then other blocks that only the prefix cache
  // holds. OutOfBlocks if a pool cannot have so many; the prefix cache is then unchanged.
  absl::Status MakeRoom(int32_t windows, int32_t compressed, int32_t states)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Drops one spare restore point of a sequence. False if there is none.
  bool DropSparePoint() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The memory's device, for the transfers of images.
  Device& device(int rank = 0) const { return *memory(rank).device; }
  // Copies all layers' rows of a block. A copy fails only if the device is lost, which the next
  // step reports.
  void CopyWindowBlock(int32_t from, int32_t to);
  void CopyCompressedKvBlock(int32_t from, int32_t to);
  // Writes an image's rows and state to its blocks, on all ranks of this process.
  absl::Status PutImage(const ImageBlocks& blocks, absl::Span<const std::byte> image);
  // While no sequence is used, the memory of all devices can be freed and allocated again;
  // ReadHeld and WriteHeld carry the held bytes over. Without memory, sequences can only be opened
  // and closed. See kv_memory.cc.
  HeldBlocks held() const;
  // `to`: held.bytes. DeviceLost.
  absl::Status ReadHeld(const HeldBlocks& held, absl::Span<std::byte> to) const;
  void FreeMemory();
  // Allocates it on devices like those of Create, which may be others. Errors: those of
  // Device::Allocate; what was allocated is freed. REQUIRES: FreeMemory.
  absl::Status AllocateMemory(absl::Span<Device* const> devices);
  // Empties all sequences and the prefix cache: the rows are lost. REQUIRES: no sequence is used.
  void ForgetRows();
  // Writes the bytes of ReadHeld on all ranks. Errors: DeviceLost.
  absl::Status WriteHeld(const HeldBlocks& held, absl::Span<const std::byte> from);
  // Sets the receiver of every write to the cache; may be null.
  KvWrites* writes() const { return writes_; }
  void set_writes(KvWrites* writes) { writes_ = writes; }
  // Registers a sequence while it is open. Errors: OutOfBlocks beyond max_sequences.
  absl::Status OpenSequence(KvSequence* sequence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MoveSequence(const KvSequence* from, KvSequence* to) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CloseSequence(const KvSequence* sequence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

 private:
  // A rank's.
  struct Memory {
    Device* device = nullptr;
    Buffer buffer;
    std::vector<LayerCache> layers;  // in it
    std::byte* states = nullptr;
  };
  KvCache(const KvCacheShape& shape, KvPlan plan, std::vector<Memory> memories);
  const Memory& memory(int rank) const { return memories_[static_cast<size_t>(rank)]; }
  // Allocates a rank's memory on its device.
  static absl::Status Allocate(const KvPlan& plan, Memory* memory);
  std::vector<MemoryPiece> PiecesOf(const HeldBlocks& held, int rank) const;
  static void CopyBlock(const Memory& memory, const RowPool& pool, int32_t from, int32_t to);

  const KvCacheShape shape_;
  const KvPlan plan_;
  std::vector<Memory> memories_;
  KvWrites* writes_ = nullptr;
  std::atomic<bool> left_behind_ = false;
  mutable Mutex mutex_;
  BlockPool window_pool_ ABSL_GUARDED_BY(mutex_);
  BlockPool compressed_pool_ ABSL_GUARDED_BY(mutex_);
  BlockPool state_pool_ ABSL_GUARDED_BY(mutex_);
  PrefixCache prefixes_ ABSL_GUARDED_BY(mutex_);
  int32_t empty_state_ = kNoBlock;
  std::vector<KvSequence*> sequences_ ABSL_GUARDED_BY(mutex_);  // open, in no order; reserved
};

}  // namespace dsv4
