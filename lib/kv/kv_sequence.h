// SPDX-License-Identifier: Apache-2.0
// One sequence's share of the cache: block tables, the compressor states at its end, and the points
// to which it can go back.
//
// A step calls Reserve and Rows, runs the forward pass and stores its streams, calls Commit and
// MtpRows, runs the MTP passes, and calls Publish. Until Commit the sequence is unchanged. A block
// with more than one holder is never written: Reserve copies it first. Nothing but Open, Fork and
// images allocates.
//
// Rows of MTP layers lie one slot later than those of other layers: slot s holds the row made of
// token s and the streams of token s - 1 (slot 0 has none). So a block does not depend on anything
// after its end. Slots below length() must be filled before Publish. Rows at and after length()
// stay until the next Rewind, AdoptPrefix, ReadImage or Fork.
//
// Used by one thread at a time; sequences of one cache by any threads.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/op/step_rows.h"
#include "lib/kv/kv_cache.h"

namespace dsv4 {

// Why a sync does not reuse more tokens.
enum class ReuseLimit : int32_t {
  kNone,             // every token is reused
  kLastToken,        // the rest must be computed again, for its logits (max_tokens)
  kTokensDiffer,     // the sequence's own tokens differ from the position on
  kNoRestorePoint,   // there are rows up to the position, but no compressor state
  kNotCached,        // the tokens that follow were never computed, or are evicted
  kIncompleteBlock,  // fewer than 256 tokens follow: only whole blocks are cached
};

struct PrefixReuse {
  int64_t own_tokens = 0;     // kept of the sequence's own rows
  int64_t cached_tokens = 0;  // after those, taken from the prefix cache
  ReuseLimit limit = ReuseLimit::kNone;
  int64_t limit_position = 0;
  int64_t tokens() const { return own_tokens + cached_tokens; }
};

class KvSequence {
 public:
  // Opens an empty sequence. `cache` must outlive it. Sequences share prefixes only with sequences
  // of the same salt. Errors: OutOfBlocks if max_sequences are open.
  static absl::StatusOr<KvSequence> Open(KvCache* cache, uint64_t salt = 0);

  KvSequence(KvSequence&& other) noexcept;
  KvSequence& operator=(KvSequence&&) = delete;
  KvSequence(const KvSequence&) = delete;
  ~KvSequence();

  int64_t length() const { return length_; }  // tokens with main rows
  // The state slot at length(). It has the streams of token length() - 1, stored by the step that
  // computed them; undefined at length() 0.
  int32_t state_slot() const { return state_; }

  // Reserves blocks and state slots for `rows` rows from length() on, and for MTP slots below
  // length() + rows + draft_slots.
  // - per_row_states: states are written after every row, of at most max_draft_tokens + 1 rows.
  //   Otherwise after the last row and at the block boundaries that become restore points.
  // - Replaces a reservation that was not committed.
  // Errors, which leave the sequence unchanged: ContextFull past the context (including MTP slots),
  // InvalidArgument past the step's limits, OutOfBlocks.
  absl::Status Reserve(int64_t rows, int64_t draft_slots = 0, bool per_row_states = false);
  // The step's view: the reserved rows, whose first is row `first_row` of the step. Valid until the
  // next Reserve, Commit or Rewind. REQUIRES: Reserve.
  SequenceRows Rows(int32_t first_row) const;
  // The view of an MTP pass over slots [first_slot, first_slot + rows). REQUIRES: the last Reserve
  // covered these slots, and they are not before the length() at that time.
  SequenceRows MtpRows(int32_t first_row, int32_t rows, int64_t first_slot) const;
  // The view of a draft block of `rows` rows from `first_position` on, behind the sequence's rows.
  // REQUIRES: as MtpRows.
  SequenceRows BlockRows(int32_t first_row, int32_t rows, int64_t first_position) const;
  // Makes the first `rows` reserved rows a part of the sequence and drops the others. 0 abandons
  // the step. REQUIRES: rows == 0, or a state was written after row `rows`.
  void Commit(int64_t rows);
  // Ends a step: complete blocks of 256 tokens go to the prefix cache (as prompt below
  // `prompt_tokens`), restore points are recorded, and window blocks that nothing needs are freed.
  // `timeline`: the sequence's tokens from its start; blocks of tokens not given are not published.
  void Publish(absl::Span<const int32_t> timeline, int64_t prompt_tokens);

  // Makes length() a restore point. The last KvCache::kTurnEnds of these points stay. Earlier ones,
  // at most KvCache::kMostTurnEnds, stay until the cache needs their blocks. Called between Publish
  // and the next Reserve.
  void MarkTurnEnd();
  // Goes back to the last position <= `tokens` that can be restored, and returns it: length(), a
  // row of the last short step, a restore point, or 0.
  int64_t Rewind(int64_t tokens);
  // Reuses rows for the longest possible prefix of `tokens`, at most `max_tokens`: the sequence's
  // own rows of its first `common_tokens` tokens, or rows of the prefix cache if it has more. The
  // sequence then ends at the result's tokens(). REQUIRES: common_tokens, max_tokens <=
  // tokens.size().
  PrefixReuse AdoptPrefix(absl::Span<const int32_t> tokens, int64_t common_tokens,
                          int64_t max_tokens);
  // Opens a sequence with the same rows and restore points. It shares all blocks. Errors:
  // OutOfBlocks if max_sequences are open.
  absl::StatusOr<KvSequence> Fork();

  // The last position <= `tokens` at which an image can be written: length() or a row of the last
  // short step. length() where there is none.
  int64_t ImagePosition(int64_t tokens) const;
  // The visible rows, index keys, states and streams at `length` as bytes, for this cache's shape.
  int64_t ImageBytes(int64_t length) const;
  int64_t ImageBytes() const { return ImageBytes(length_); }
  // REQUIRES: ImagePosition(length) == length; ImageBytes(length) long. DeviceLost.
  absl::Status WriteImage(int64_t length, absl::Span<std::byte> image) const;
  absl::Status WriteImage(absl::Span<std::byte> image) const { return WriteImage(length_, image); }
  // Replaces the sequence by the image. The image's rows cannot be verified, so nothing is
  // published to the prefix cache until the sequence is rewound to 0 or adopts a prefix. Errors:
  // DeviceLost; these leave the sequence unchanged: Corrupt (the length does not fit), ContextFull,
  // OutOfBlocks, OutOfHostMemory.
  absl::Status ReadImage(int64_t length, absl::Span<const std::byte> image);

  // Bytes of the blocks in its tables and of its state, including shared ones, without restore
  // points.
  int64_t held_bytes() const;

 private:
  // `state` as it was at `position`; a reference of its own.
  struct StepState {
    int64_t position = 0;
    int32_t state = kNoBlock;
  };
  struct RestorePoint {
    int64_t position = 0;
    int32_t state = kNoBlock;
    int32_t window_blocks[3] = {kNoBlock, kNoBlock, kNoBlock};  // from FirstWindowBlock(position)
    bool turn_end = false;
  };

  KvSequence(KvCache* cache, uint64_t salt);

  // Moves while the lock holds the cache's mutex.
  KvSequence(const MutexLock& lock, KvSequence& other) noexcept;

  // Becomes a fork of a sequence of the same cache. After OutOfBlocks it holds nothing.
  absl::Status CopyTo(KvSequence* copy);

  friend class KvCache;

  // The number of turn ends beyond the promised ones. DropSparePoint drops the oldest; REQUIRES:
  // there is one.
  int32_t spare_points() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(cache_->mutex());
  void DropSparePoint() ABSL_EXCLUSIVE_LOCKS_REQUIRED(cache_->mutex());
  int64_t RestorablePosition(int64_t tokens) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(cache_->mutex());
  int64_t RewindLocked(int64_t tokens) ABSL_EXCLUSIVE_LOCKS_REQUIRED(cache_->mutex());
  // Becomes the node's `tokens` tokens; `kept` of them are the sequence's own.
  void TakeOver(PrefixCache::Node node, int64_t tokens, int64_t kept)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(cache_->mutex());
  PrefixCache::Node NodeAt(int64_t position) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(cache_->mutex());  // kRoot where there is none
  void AddPoint(int64_t position, int32_t state, bool turn_end)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(cache_->mutex());
  void AddPointsOfNodes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(
      cache_->mutex());  // where its nodes have snapshots that a restore point needs
  void DropUnwantedPoints() ABSL_EXCLUSIVE_LOCKS_REQUIRED(cache_->mutex());
  bool Wanted(const RestorePoint& point) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(cache_->mutex());
  void HoldPoint(const RestorePoint& point) ABSL_EXCLUSIVE_LOCKS_REQUIRED(cache_->mutex());
  void ReleasePoint(const RestorePoint& point) ABSL_EXCLUSIVE_LOCKS_REQUIRED(cache_->mutex());
  void ReleasePointsAfter(int64_t position) ABSL_EXCLUSIVE_LOCKS_REQUIRED(cache_->mutex());
  void ReleaseStepStates() ABSL_EXCLUSIVE_LOCKS_REQUIRED(cache_->mutex());
  void ReleaseStateWrites() ABSL_EXCLUSIVE_LOCKS_REQUIRED(cache_->mutex());
  void ReleaseWindowBlocksBefore(int64_t entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(cache_->mutex());
  void ReleaseCompressedKvBlocksFrom(int64_t entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(cache_->mutex());
  // OutOfBlocks if there is no room for so many blocks and a state, even after Reset.
  absl::Status CheckRoomAfterReset(int32_t windows, int32_t compressed) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(cache_->mutex());
  void SetState(int32_t state)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(cache_->mutex());  // takes a reference, gives up the old one
  void Reset() ABSL_EXCLUSIVE_LOCKS_REQUIRED(cache_->mutex());  // to the empty sequence

  KvCache* cache_;
  uint64_t salt_ = 0;
  int64_t length_ = 0;
  std::vector<int32_t> window_blocks_;  // [context / 64]: entries [window_begin_, window_end_)
  std::vector<int32_t> compressed_kv_blocks_;  // [context / 256]: entries [0, compressed_end_)
  int64_t window_begin_ = 0, window_end_ = 0, compressed_end_ = 0;
  int32_t state_ = kNoBlock;  // at length_
  // The running step: what Reserve was asked for, and the states it writes.
  int64_t reserved_rows_ = 0;
  std::vector<StateWrite> state_writes_;
  std::vector<int32_t> write_slots_;  // of state_writes_
  // States of the last committed step, ascending: those that can become restore points, and in a
  // short step the one before it and those of all rows kept.
  std::vector<StepState> step_states_;
  bool short_step_ = false;
  std::vector<RestorePoint> points_;  // ascending
  int64_t published_blocks_ = 0;  // compressed_kv_blocks_[0, published_blocks_) are nodes' blocks
  PrefixCache::Node node_ = PrefixCache::kRoot;  // the last of those nodes
  int64_t prompt_blocks_ = 0;                    // the first of them that are marked as prompt
  bool publishes_ = true;
};

}  // namespace dsv4
