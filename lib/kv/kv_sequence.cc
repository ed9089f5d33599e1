// SPDX-License-Identifier: Apache-2.0
#include "lib/kv/kv_sequence.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "lib/base/checked_math.h"
#include "lib/base/contained.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/kv/window_reach.h"

namespace dsv4 {

KvSequence::KvSequence(KvCache* cache, uint64_t salt)
    : cache_(cache),
      salt_(salt),
      window_blocks_(CeilDiv(cache->shape().context_tokens, kWindowBlockTokens), kNoBlock),
      compressed_kv_blocks_(CeilDiv(cache->shape().context_tokens, kCompressedKvBlockTokens),
                            kNoBlock) {
  const KvPlan& plan = cache->plan();
  state_writes_.reserve(static_cast<size_t>(plan.state_writes_per_step));
  write_slots_.reserve(state_writes_.capacity());
  step_states_.reserve(state_writes_.capacity() + 1);
  // Publish adds a step's points before it drops older ones.
  points_.reserve(static_cast<size_t>(plan.restore_points) +
                  static_cast<size_t>(plan.state_writes_per_step) + 1);
}

absl::StatusOr<KvSequence> KvSequence::Open(KvCache* cache, uint64_t salt) {
  KvSequence sequence(cache, salt);
  {
    MutexLock lock(cache->mutex());
    sequence.cache_->mutex()->AssertHeld();
    const absl::Status status = cache->OpenSequence(&sequence);
    if (!status.ok()) {
      sequence.cache_ = nullptr;  // holds nothing
      return status;
    }
    sequence.SetState(cache->empty_state());
  }
  return sequence;
}

KvSequence::KvSequence(KvSequence&& other) noexcept
    : KvSequence(MutexLock(other.cache_->mutex()), other) {}

KvSequence::KvSequence(const MutexLock&, KvSequence& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)),
      salt_(other.salt_),
      length_(other.length_),
      window_blocks_(std::move(other.window_blocks_)),
      compressed_kv_blocks_(std::move(other.compressed_kv_blocks_)),
      window_begin_(other.window_begin_),
      window_end_(other.window_end_),
      compressed_end_(other.compressed_end_),
      state_(other.state_),
      reserved_rows_(other.reserved_rows_),
      state_writes_(std::move(other.state_writes_)),
      write_slots_(std::move(other.write_slots_)),
      step_states_(std::move(other.step_states_)),
      short_step_(other.short_step_),
      points_(std::move(other.points_)),
      published_blocks_(other.published_blocks_),
      node_(other.node_),
      prompt_blocks_(other.prompt_blocks_),
      publishes_(other.publishes_) {
  cache_->MoveSequence(&other, this);
}

KvSequence::~KvSequence() {
  if (cache_ == nullptr || cache_->left_behind()) return;
  MutexLock lock(cache_->mutex());
  Reset();
  cache_->state_pool().Release(state_);
  cache_->CloseSequence(this);
}

absl::Status KvSequence::Reserve(int64_t rows, int64_t draft_slots, bool per_row_states) {
  const KvCacheShape& shape = cache_->shape();
  const int64_t verify_rows = shape.max_draft_tokens + 1;
  const int64_t limit =
      per_row_states ? verify_rows : std::max<int64_t>(shape.max_step_tokens, verify_rows);
  if (rows < 1 || rows > limit) {
    return InvalidArgument("a step of ", rows, " rows of a sequence is not in 1..", limit);
  }
  const int64_t most_slots = std::max<int64_t>(shape.max_draft_slots, verify_rows);
  if (draft_slots < 0 || draft_slots > most_slots) {
    return InvalidArgument(draft_slots, " draft slots are not in 0..", most_slots);
  }
  const int64_t end = length_ + rows, slots_end = end + draft_slots;
  if (slots_end > shape.context_tokens) {
    return ContextFull("a step ends at token ", slots_end, " of a sequence; the context holds ",
                       shape.context_tokens);
  }

  MutexLock lock(cache_->mutex());
  BlockPool &windows = cache_->window_pool(), &compressed = cache_->compressed_pool();
  ReleaseStateWrites();
  if (!short_step_) ReleaseStepStates();
  reserved_rows_ = rows;
  for (int64_t row = 1; row <= rows; ++row) {
    const int64_t position = length_ + row;
    const bool boundary =
        position % kCompressedKvBlockTokens == 0 &&
        (end - position <= KvCache::kRecentTokens || position % KvCache::kSparseTokens == 0);
    if (per_row_states || boundary || row == rows) {
      state_writes_.push_back({.row = static_cast<int32_t>(row), .slot = kNoBlock});
    }
  }
  const auto lacking = [](const std::vector<int32_t>& table, int64_t first, int64_t last,
                          int64_t table_end, const BlockPool& pool) {
    int32_t blocks = 0;
    for (int64_t i = first; i < last; ++i) blocks += i >= table_end || pool.shared(table[i]);
    return blocks;
  };
  const int64_t window_first = length_ / kWindowBlockTokens;
  const int64_t window_last = CeilDiv(slots_end, kWindowBlockTokens);
  const int64_t compressed_first = length_ / kCompressedKvBlockTokens;
  const int64_t compressed_last = CeilDiv(end, kCompressedKvBlockTokens);
  int32_t compressed_need = lacking(compressed_kv_blocks_, compressed_first, compressed_last,
                                    compressed_end_, compressed);
  if (compressed_need > compressed.free_blocks() + compressed.only_cached_blocks() &&
      compressed_first < compressed_end_ &&
      compressed.references(compressed_kv_blocks_[compressed_first]) == 2 &&
      compressed.cached_references(compressed_kv_blocks_[compressed_first]) == 1 &&
      cache_->prefixes().Forget(compressed_kv_blocks_[compressed_first])) {
    --compressed_need;  // the prefix cache gave up the last block instead of a copy
  }
  const absl::Status room = Contained([&] {
    cache_->mutex()->AssertHeld();
    return cache_->MakeRoom(
        lacking(window_blocks_, window_first, window_last, window_end_, windows), compressed_need,
        static_cast<int32_t>(state_writes_.size()));
  });
  if (!room.ok()) {
    state_writes_.clear();
    reserved_rows_ = 0;
    return room;
  }
  for (int64_t i = window_first; i < window_last; ++i) {
    int32_t& block = window_blocks_[i];
    if (i >= window_end_) {
      block = windows.Take();
    } else if (windows.shared(block)) {
      const int32_t copy = windows.Take();
      cache_->CopyWindowBlock(block, copy);
      windows.Release(std::exchange(block, copy));
    }
  }
  window_end_ = std::max(window_end_, window_last);
  for (int64_t i = compressed_first; i < compressed_last; ++i) {
    int32_t& block = compressed_kv_blocks_[i];
    if (i >= compressed_end_) {
      block = compressed.Take();
    } else if (compressed.shared(block)) {
      const int32_t copy = compressed.Take();
      cache_->CopyCompressedKvBlock(block, copy);
      compressed.Release(std::exchange(block, copy));
    }
  }
  compressed_end_ = std::max(compressed_end_, compressed_last);
  for (StateWrite& write : state_writes_) {
    write.slot = cache_->state_pool().Take();
    write_slots_.push_back(write.slot);
  }
  return absl::OkStatus();
}

SequenceRows KvSequence::Rows(int32_t first_row) const {
  return {.first_row = first_row,
          .rows = static_cast<int32_t>(reserved_rows_),
          .first_position = length_,
          .window_blocks = window_blocks_.data(),
          .compressed_kv_blocks = compressed_kv_blocks_.data(),
          .state_slot = state_,
          .state_writes = state_writes_.data(),
          .state_write_count = static_cast<int32_t>(state_writes_.size())};
}

SequenceRows KvSequence::MtpRows(int32_t first_row, int32_t rows, int64_t first_slot) const {
  return {.first_row = first_row,
          .rows = rows,
          .first_position = first_slot,
          .window_blocks = window_blocks_.data(),
          .compressed_kv_blocks = compressed_kv_blocks_.data(),
          .window_begin = 1};
}

SequenceRows KvSequence::BlockRows(int32_t first_row, int32_t rows, int64_t first_position) const {
  return {.first_row = first_row,
          .rows = rows,
          .first_position = first_position,
          .window_blocks = window_blocks_.data()};
}

void KvSequence::Commit(int64_t rows) {
  if (cache_->left_behind()) return;
  MutexLock lock(cache_->mutex());
  if (rows > 0) {
    ReleaseStepStates();
    short_step_ = reserved_rows_ <= KvCache::kShortStepRows;
    // References move from state_ and write_slots_ to step_states_.
    if (short_step_) {
      step_states_.push_back({.position = length_, .state = state_});
    } else {
      cache_->state_pool().Release(state_);
    }
    state_ = kNoBlock;
    for (size_t i = 0; i < state_writes_.size() && state_writes_[i].row <= rows; ++i) {
      step_states_.push_back(
          {.position = length_ + state_writes_[i].row, .state = write_slots_[i]});
      write_slots_[i] = kNoBlock;
    }
    assert(step_states_.back().position == length_ + rows);
    state_ = step_states_.back().state;
    cache_->state_pool().Add(state_);
    length_ += rows;
  }
  ReleaseStateWrites();
  ReleaseCompressedKvBlocksFrom(CeilDiv(length_, kCompressedKvBlockTokens));
}

void KvSequence::Publish(absl::Span<const int32_t> timeline, int64_t prompt_tokens) {
  MutexLock lock(cache_->mutex());
  PrefixCache& prefixes = cache_->prefixes();
  BlockPool& compressed = cache_->compressed_pool();
  const int64_t known = std::min<int64_t>(length_, static_cast<int64_t>(timeline.size()));
  const int64_t before = published_blocks_;
  while (publishes_ && (published_blocks_ + 1) * kCompressedKvBlockTokens <= known) {
    const int32_t* tokens = timeline.data() + published_blocks_ * kCompressedKvBlockTokens;
    int32_t& block = compressed_kv_blocks_[published_blocks_];
    PrefixCache::Node next = prefixes.Find(node_, salt_, tokens);
    if (next == PrefixCache::kNone) {
      next = prefixes.Insert(node_, salt_, tokens, block);
      if (next == PrefixCache::kNone) break;
    } else if (prefixes.compressed_kv_block(next) != block) {
      // By the row rule the same bits: one copy is enough.
      compressed.Add(prefixes.compressed_kv_block(next));
      compressed.Release(std::exchange(block, prefixes.compressed_kv_block(next)));
    }
    node_ = next;
    ++published_blocks_;
  }
  if (published_blocks_ > before) prefixes.Touch(node_);
  // A turn's answer is part of the next one's prompt.
  const int64_t prompt_blocks =
      std::min(prompt_tokens / kCompressedKvBlockTokens, published_blocks_);
  if (prompt_blocks > prompt_blocks_) {
    prefixes.MarkPrompt(NodeAt(prompt_blocks * kCompressedKvBlockTokens));
    prompt_blocks_ = prompt_blocks;
  }
  for (const StepState& kept : step_states_) {
    if (kept.position > 0 && kept.position % kCompressedKvBlockTokens == 0) {
      AddPoint(kept.position, kept.state, false);
    }
  }
  DropUnwantedPoints();
  if (!short_step_) ReleaseStepStates();
  ReleaseWindowBlocksBefore(
      FirstWindowBlock(step_states_.empty() ? length_ : step_states_.front().position));
}

absl::StatusOr<KvSequence> KvSequence::Fork() {
  KvSequence fork(cache_, salt_);
  DSV4_RETURN_IF_ERROR(CopyTo(&fork));
  return fork;
}

absl::Status KvSequence::CopyTo(KvSequence* copy) {
  KvSequence& fork = *copy;
  MutexLock lock(cache_->mutex());
  fork.cache_->mutex()->AssertHeld();
  const absl::Status status = cache_->OpenSequence(&fork);
  if (!status.ok()) {
    fork.cache_ = nullptr;
    return status;
  }
  fork.length_ = length_;
  fork.window_begin_ = window_begin_;
  fork.window_end_ = CeilDiv(length_, kWindowBlockTokens);
  for (int64_t i = fork.window_begin_; i < fork.window_end_; ++i) {
    cache_->window_pool().Add(fork.window_blocks_[i] = window_blocks_[i]);
  }
  fork.compressed_end_ = CeilDiv(length_, kCompressedKvBlockTokens);
  for (int64_t i = 0; i < fork.compressed_end_; ++i) {
    cache_->compressed_pool().Add(fork.compressed_kv_blocks_[i] = compressed_kv_blocks_[i]);
  }
  fork.SetState(state_);
  for (const StepState& kept : step_states_) {
    cache_->state_pool().Add(kept.state);
    fork.step_states_.push_back(kept);
  }
  fork.short_step_ = short_step_;
  for (const RestorePoint& point : points_) {
    HoldPoint(point);
    fork.points_.push_back(point);
  }
  fork.published_blocks_ = published_blocks_;
  fork.node_ = node_;
  fork.prompt_blocks_ = prompt_blocks_;
  fork.publishes_ = publishes_;
  return absl::OkStatus();
}

int64_t KvSequence::held_bytes() const {
  const KvPlan& plan = cache_->plan();
  return (window_end_ - window_begin_) * plan.window_block_bytes +
         compressed_end_ * plan.compressed_kv_block_bytes + plan.state_bytes;
}

void KvSequence::ReleaseStepStates() {
  for (const StepState& kept : step_states_) cache_->state_pool().Release(kept.state);
  step_states_.clear();
  short_step_ = false;
}

void KvSequence::ReleaseStateWrites() {
  for (const int32_t slot : write_slots_) {
    if (slot != kNoBlock) cache_->state_pool().Release(slot);
  }
  write_slots_.clear();
  state_writes_.clear();
  reserved_rows_ = 0;
}

void KvSequence::ReleaseWindowBlocksBefore(int64_t entry) {
  for (; window_begin_ < std::min(entry, window_end_); ++window_begin_) {
    cache_->window_pool().Release(std::exchange(window_blocks_[window_begin_], kNoBlock));
  }
}

void KvSequence::ReleaseCompressedKvBlocksFrom(int64_t entry) {
  for (; compressed_end_ > entry; --compressed_end_) {
    cache_->compressed_pool().Release(
        std::exchange(compressed_kv_blocks_[compressed_end_ - 1], kNoBlock));
  }
}

void KvSequence::SetState(int32_t state) {
  cache_->state_pool().Add(state);
  if (state_ != kNoBlock) cache_->state_pool().Release(state_);
  state_ = state;
}

void KvSequence::Reset() {
  cache_->prefixes().Touch(node_);
  ReleaseStateWrites();
  ReleaseStepStates();
  ReleasePointsAfter(0);
  ReleaseWindowBlocksBefore(window_end_);
  window_begin_ = window_end_ = 0;
  ReleaseCompressedKvBlocksFrom(0);
  SetState(cache_->empty_state());
  length_ = 0;
  published_blocks_ = 0;
  node_ = PrefixCache::kRoot;
  prompt_blocks_ = 0;
  publishes_ = true;
}

}  // namespace dsv4
