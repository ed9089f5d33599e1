// SPDX-License-Identifier: Apache-2.0
#include "lib/kv/kv_sequence.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lib/base/checked_math.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"

namespace dsv4 {
namespace {

// First window block that a token at `position` or later sees.
int64_t WindowBegin(int64_t position) {
  return std::max<int64_t>(0, position - (kWindowTokens - 1)) / kWindowBlockTokens;
}

int64_t BlocksFor(int64_t tokens, int64_t block_tokens) { return CeilDiv(tokens, block_tokens); }

}  // namespace

KvSequence::KvSequence(KvCache* cache)
    : cache_(cache),
      window_blocks_(BlocksFor(cache->shape().context_tokens, kWindowBlockTokens), kNoBlock),
      group_blocks_(BlocksFor(cache->shape().context_tokens, kGroupBlockTokens), kNoBlock) {
  restore_blocks_.reserve(BlocksFor(kWindowTokens - 1, kWindowBlockTokens) + 1);
}

absl::StatusOr<KvSequence> KvSequence::Open(KvCache* cache) {
  KvSequence sequence(cache);
  for (int32_t& state : sequence.states_) {
    DSV4_ASSIGN_OR_RETURN(state, cache->state_pool().Take());
  }
  return sequence;
}

KvSequence::KvSequence(KvSequence&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)),
      length_(other.length_),
      window_blocks_(std::move(other.window_blocks_)),
      group_blocks_(std::move(other.group_blocks_)),
      restore_length_(other.restore_length_),
      restore_blocks_(std::move(other.restore_blocks_)) {
  std::copy(std::begin(other.states_), std::end(other.states_), std::begin(states_));
}

KvSequence::~KvSequence() {
  if (cache_ == nullptr) return;
  ReleaseRestoreBlocks();
  ReleaseWindowBlocks(0, static_cast<int64_t>(window_blocks_.size()));
  for (const int32_t block : group_blocks_) {
    if (block != kNoBlock) cache_->group_pool().Release(block);
  }
  for (const int32_t state : states_) {
    if (state != kNoBlock) cache_->state_pool().Release(state);
  }
}

absl::Status KvSequence::Reserve(int64_t tokens, int64_t extra_slots) {
  const int64_t end = length_ + tokens, slots_end = end + extra_slots;
  if (slots_end > cache_->shape().context_tokens) {
    return ContextFull(slots_end, " tokens; the context holds ", cache_->shape().context_tokens);
  }
  const auto reserve = [](std::vector<int32_t>& table, int64_t begin, int64_t blocks_end,
                          BlockPool& pool) -> absl::Status {
    std::vector<int32_t>::iterator first = table.begin() + begin, last = table.begin() + blocks_end;
    for (auto entry = first; entry != last; ++entry) {
      if (*entry != kNoBlock) continue;
      absl::StatusOr<int32_t> block = pool.Take();
      if (!block.ok()) return std::move(block).status();
      *entry = *block;
    }
    return absl::OkStatus();
  };
  absl::Status status = reserve(window_blocks_, WindowBegin(length_),
                                BlocksFor(slots_end, kWindowBlockTokens), cache_->window_pool());
  if (status.ok()) {
    status = reserve(group_blocks_, 0, BlocksFor(end, kGroupBlockTokens), cache_->group_pool());
  }
  if (!status.ok()) {
    // Back to what the committed tokens need.
    ReleaseWindowBlocks(BlocksFor(length_, kWindowBlockTokens),
                        BlocksFor(slots_end, kWindowBlockTokens));
    for (int64_t i = BlocksFor(length_, kGroupBlockTokens); i < BlocksFor(end, kGroupBlockTokens);
         ++i) {
      if (group_blocks_[i] != kNoBlock) {
        cache_->group_pool().Release(std::exchange(group_blocks_[i], kNoBlock));
      }
    }
  }
  return status;
}

SequenceRows KvSequence::Rows(int32_t first_row, int32_t rows) {
  save_ = {.row = rows, .state = cache_->state(states_[1])};
  return {.first_row = first_row,
          .rows = rows,
          .first_position = length_,
          .window_blocks = window_blocks_.data(),
          .group_blocks = group_blocks_.data(),
          .state_in = cache_->state(states_[0]),
          .saves = &save_,
          .save_count = 1};
}

SequenceRows KvSequence::MtpRows(int32_t first_row, int32_t rows, int64_t first_slot) const {
  return {.first_row = first_row,
          .rows = rows,
          .first_position = first_slot,
          .window_blocks = window_blocks_.data(),
          .group_blocks = group_blocks_.data(),
          .window_begin = 1};
}

void KvSequence::Commit(int64_t rows) {
  const int64_t before = WindowBegin(length_);
  length_ += rows;
  std::swap(states_[0], states_[1]);
  ReleaseWindowBlocks(before, WindowBegin(length_));
}

void KvSequence::SaveRestorePoint() {
  ReleaseRestoreBlocks();
  restore_length_ = length_;
  if (length_ == 0) return;
  for (int64_t i = WindowBegin(length_); i < BlocksFor(length_, kWindowBlockTokens); ++i) {
    cache_->window_pool().AddReference(window_blocks_[i]);
    restore_blocks_.push_back(window_blocks_[i]);
  }
  std::memcpy(cache_->state(states_[2]), cache_->state(states_[0]),
              static_cast<size_t>(cache_->state_bytes()));
}

int64_t KvSequence::RestorablePosition(int64_t tokens) const {
  if (tokens >= length_) return length_;
  return tokens >= restore_length_ ? restore_length_ : 0;
}

int64_t KvSequence::Rewind(int64_t tokens) {
  const int64_t target = RestorablePosition(tokens);
  if (target == length_) return target;
  ReleaseWindowBlocks(0, static_cast<int64_t>(window_blocks_.size()));
  if (target > 0) {
    // Rows at and after the restore point in these blocks are written again before they are read.
    int64_t entry = WindowBegin(target);
    for (const int32_t block : restore_blocks_) {
      cache_->window_pool().AddReference(block);
      window_blocks_[entry++] = block;
    }
    std::memcpy(cache_->state(states_[0]), cache_->state(states_[2]),
                static_cast<size_t>(cache_->state_bytes()));
  } else {
    ReleaseRestoreBlocks();
    restore_length_ = 0;
  }
  for (int64_t i = BlocksFor(target, kGroupBlockTokens);
       i < static_cast<int64_t>(group_blocks_.size()) && group_blocks_[i] != kNoBlock; ++i) {
    cache_->group_pool().Release(std::exchange(group_blocks_[i], kNoBlock));
  }
  length_ = target;
  return target;
}

int64_t KvSequence::held_bytes() const {
  const auto held = [](const std::vector<int32_t>& table) {
    return static_cast<int64_t>(table.size()) - std::count(table.begin(), table.end(), kNoBlock);
  };
  return held(window_blocks_) * cache_->window_block_bytes() +
         held(group_blocks_) * cache_->group_block_bytes() + kStateSlots * cache_->state_bytes();
}

void KvSequence::ReleaseWindowBlocks(int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    if (window_blocks_[i] != kNoBlock) {
      cache_->window_pool().Release(std::exchange(window_blocks_[i], kNoBlock));
    }
  }
}

void KvSequence::ReleaseRestoreBlocks() {
  for (const int32_t block : restore_blocks_) cache_->window_pool().Release(block);
  restore_blocks_.clear();
}

}  // namespace dsv4
