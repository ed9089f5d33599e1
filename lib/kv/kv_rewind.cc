// SPDX-License-Identifier: Apache-2.0
// How a sequence goes back, or over to a cached prefix: its restore points and the snapshots of its
// nodes.
#include <algorithm>

#include "lib/base/checked_math.h"
#include "lib/kv/kv_sequence.h"
#include "lib/kv/window_reach.h"

namespace dsv4 {

void KvSequence::MarkTurnEnd() {
  if (cache_->left_behind()) return;
  if (length_ == 0) return;
  MutexLock lock(cache_->mutex());
  AddPoint(length_, state_, true);
  if (spare_points() > KvCache::kMostTurnEnds - KvCache::kTurnEnds) DropSparePoint();
}

int32_t KvSequence::spare_points() const {
  const auto ends = std::count_if(points_.begin(), points_.end(),
                                  [](const RestorePoint& point) { return point.turn_end; });
  return std::max(static_cast<int32_t>(ends) - KvCache::kTurnEnds, 0);
}

// The longest list of turn ends gives up its oldest one.
bool KvCache::DropSparePoint() {
  KvSequence* richest = nullptr;
  int32_t most = 0;
  for (KvSequence* sequence : sequences_) {
    sequence->cache_->mutex()->AssertHeld();  // this cache's
    const int32_t spare = sequence->spare_points();
    if (spare > most) {
      most = spare;
      richest = sequence;
    }
  }
  if (richest == nullptr) return false;
  richest->cache_->mutex()->AssertHeld();
  richest->DropSparePoint();
  return true;
}

void KvSequence::DropSparePoint() {
  std::find_if(points_.begin(), points_.end(), [](const RestorePoint& point) {
    return point.turn_end;
  })->turn_end = false;
  DropUnwantedPoints();
}

int64_t KvSequence::RestorablePosition(int64_t tokens) const {
  if (tokens >= length_) return length_;
  int64_t position = 0;
  if (short_step_) {
    for (const StepState& kept : step_states_) {
      if (kept.position <= tokens) position = kept.position;
    }
  }
  for (const RestorePoint& point : points_) {
    if (point.position <= tokens) position = std::max(position, point.position);
  }
  return position;
}

int64_t KvSequence::Rewind(int64_t tokens) {
  if (cache_->left_behind()) return length_;
  MutexLock lock(cache_->mutex());
  return RewindLocked(tokens);
}

int64_t KvSequence::RewindLocked(int64_t tokens) {
  const int64_t target = RestorablePosition(tokens);
  ReleaseStateWrites();
  if (target == length_) return target;
  cache_->prefixes().Touch(node_);
  if (target == 0) {
    Reset();
    return 0;
  }
  ReleasePointsAfter(target);
  const auto kept = std::find_if(step_states_.begin(), step_states_.end(),
                                 [&](const StepState& state) { return state.position == target; });
  if (short_step_ && kept != step_states_.end()) {
    // The table still has the blocks that every row of the step sees.
    SetState(kept->state);
    for (auto later = kept + 1; later != step_states_.end(); ++later) {
      cache_->state_pool().Release(later->state);
    }
    step_states_.erase(kept + 1, step_states_.end());
  } else {
    const RestorePoint& point = points_.back();
    SetState(point.state);
    ReleaseStepStates();
    ReleaseWindowBlocksBefore(window_end_);
    window_begin_ = FirstWindowBlock(target);
    window_end_ = CeilDiv(target, kWindowBlockTokens);
    for (int64_t i = window_begin_; i < window_end_; ++i) {
      window_blocks_[i] = point.window_blocks[i - window_begin_];
      cache_->window_pool().Add(window_blocks_[i]);
    }
  }
  ReleaseCompressedKvBlocksFrom(CeilDiv(target, kCompressedKvBlockTokens));
  for (; published_blocks_ > target / kCompressedKvBlockTokens; --published_blocks_) {
    node_ = cache_->prefixes().parent(node_);
  }
  prompt_blocks_ = std::min(prompt_blocks_, published_blocks_);
  length_ = target;
  AddPointsOfNodes();
  return target;
}

PrefixReuse KvSequence::AdoptPrefix(absl::Span<const int32_t> tokens, int64_t common_tokens,
                                    int64_t max_tokens) {
  MutexLock lock(cache_->mutex());
  const PrefixCache& prefixes = cache_->prefixes();
  const int64_t length = length_;
  const int64_t own_known = std::min({common_tokens, max_tokens, length});
  const int64_t own = RestorablePosition(own_known);
  int64_t matched = 0, cached = 0;
  PrefixCache::Node node = PrefixCache::kRoot, last = PrefixCache::kRoot;
  while (matched + kCompressedKvBlockTokens <= max_tokens) {
    node = prefixes.Find(node, salt_, tokens.data() + matched);
    if (node == PrefixCache::kNone) break;
    matched += kCompressedKvBlockTokens;
    if (prefixes.snapshot(node).present()) {
      cached = matched;
      last = node;
    }
  }
  PrefixReuse reuse{.own_tokens = own, .cached_tokens = std::max<int64_t>(cached - own, 0)};
  if (cached > own) {
    TakeOver(last, cached, own);
  } else {
    RewindLocked(own);
  }
  const int64_t known = std::max(own_known, matched);
  reuse.limit_position = known;
  if (reuse.tokens() == max_tokens) {
    reuse.limit = max_tokens == static_cast<int64_t>(tokens.size()) ? ReuseLimit::kNone
                                                                    : ReuseLimit::kLastToken;
  } else if (reuse.tokens() < known) {
    reuse.limit = ReuseLimit::kNoRestorePoint;
  } else if (known == common_tokens && known < length) {
    reuse.limit = ReuseLimit::kTokensDiffer;
  } else if (max_tokens - known < kCompressedKvBlockTokens) {
    reuse.limit = ReuseLimit::kIncompleteBlock;
  } else {
    reuse.limit = ReuseLimit::kNotCached;
  }
  return reuse;
}

void KvSequence::TakeOver(PrefixCache::Node node, int64_t tokens, int64_t kept) {
  PrefixCache& prefixes = cache_->prefixes();
  BlockPool &windows = cache_->window_pool(), &compressed = cache_->compressed_pool();
  prefixes.Touch(node_);
  prefixes.Touch(node);
  // References to the new blocks are taken before the old ones are dropped.
  const int64_t blocks = tokens / kCompressedKvBlockTokens;
  PrefixCache::Node at = node;
  for (int64_t i = blocks - 1; i >= 0; --i, at = prefixes.parent(at)) {
    compressed.Add(prefixes.compressed_kv_block(at));
    if (i < compressed_end_) compressed.Release(compressed_kv_blocks_[i]);
    compressed_kv_blocks_[i] = prefixes.compressed_kv_block(at);
  }
  ReleaseCompressedKvBlocksFrom(blocks);
  compressed_end_ = blocks;
  const Snapshot snapshot = prefixes.snapshot(node);
  for (const int32_t block : snapshot.window_blocks) windows.Add(block);
  ReleaseWindowBlocksBefore(window_end_);
  window_end_ = tokens / kWindowBlockTokens;
  window_begin_ = window_end_ - 2;
  std::copy_n(snapshot.window_blocks, 2, window_blocks_.begin() + window_begin_);
  SetState(snapshot.state);
  ReleaseStateWrites();
  ReleaseStepStates();
  ReleasePointsAfter(publishes_ ? kept : 0);
  length_ = tokens;
  published_blocks_ = blocks;
  node_ = node;
  prompt_blocks_ = 0;
  publishes_ = true;
  AddPointsOfNodes();
}

PrefixCache::Node KvSequence::NodeAt(int64_t position) const {
  const int64_t block = position / kCompressedKvBlockTokens;
  if (position % kCompressedKvBlockTokens != 0 || block > published_blocks_)
    return PrefixCache::kRoot;
  PrefixCache::Node node = node_;
  for (int64_t i = published_blocks_; i > block; --i) node = cache_->prefixes().parent(node);
  return node;
}

void KvSequence::AddPoint(int64_t position, int32_t state, bool turn_end) {
  const auto after =
      std::lower_bound(points_.begin(), points_.end(), position,
                       [](const RestorePoint& point, int64_t p) { return point.position < p; });
  if (after != points_.end() && after->position == position) {
    after->turn_end |= turn_end;
    return;
  }
  RestorePoint point{.position = position, .state = state, .turn_end = turn_end};
  const PrefixCache::Node node = NodeAt(position);
  if (node != PrefixCache::kRoot && cache_->prefixes().snapshot(node).present()) {
    // The same bits: one copy is enough.
    const Snapshot& snapshot = cache_->prefixes().snapshot(node);
    point.state = snapshot.state;
    std::copy_n(snapshot.window_blocks, 2, point.window_blocks);
  } else {
    const int64_t first = FirstWindowBlock(position);
    const int64_t last = CeilDiv(position, kWindowBlockTokens);
    if (first < window_begin_) return;  // its rows are gone
    std::copy(window_blocks_.begin() + first, window_blocks_.begin() + last, point.window_blocks);
    if (node != PrefixCache::kRoot) {
      cache_->prefixes().SetSnapshot(
          node, {.window_blocks = {point.window_blocks[0], point.window_blocks[1]},
                 .state = point.state});
    }
  }
  HoldPoint(point);
  points_.insert(after, point);
}

void KvSequence::AddPointsOfNodes() {
  PrefixCache::Node node = node_;
  for (int64_t block = published_blocks_; block > 0; --block) {
    RestorePoint point{.position = block * kCompressedKvBlockTokens};
    if (Wanted(point) && cache_->prefixes().snapshot(node).present()) {
      AddPoint(point.position, kNoBlock, false);
    }
    node = cache_->prefixes().parent(node);
  }
}

bool KvSequence::Wanted(const RestorePoint& point) const {
  return point.turn_end || point.position % KvCache::kSparseTokens == 0 ||
         (point.position % kCompressedKvBlockTokens == 0 &&
          length_ - point.position <= KvCache::kRecentTokens);
}

void KvSequence::DropUnwantedPoints() {
  const auto unwanted = [&](const RestorePoint& point) {
    cache_->mutex()->AssertHeld();
    if (Wanted(point)) return false;
    ReleasePoint(point);
    return true;
  };
  points_.erase(std::remove_if(points_.begin(), points_.end(), unwanted), points_.end());
}

void KvSequence::HoldPoint(const RestorePoint& point) {
  cache_->state_pool().Add(point.state);
  for (const int32_t block : point.window_blocks) {
    if (block != kNoBlock) cache_->window_pool().Add(block);
  }
}

void KvSequence::ReleasePoint(const RestorePoint& point) {
  cache_->state_pool().Release(point.state);
  for (const int32_t block : point.window_blocks) {
    if (block != kNoBlock) cache_->window_pool().Release(block);
  }
}

void KvSequence::ReleasePointsAfter(int64_t position) {
  for (; !points_.empty() && points_.back().position > position; points_.pop_back()) {
    ReleasePoint(points_.back());
  }
}

}  // namespace dsv4
