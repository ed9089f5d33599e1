// SPDX-License-Identifier: Apache-2.0
#include "lib/kv/kv_sequence.h"

#include <algorithm>
#include <cassert>
#include <mutex>
#include <utility>

#include "lib/base/checked_math.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/kv/window_reach.h"

namespace dsv4 {

KvSequence::KvSequence(KvCache* cache, uint64_t salt)
    : cache_(cache),
      salt_(salt),
      window_blocks_(CeilDiv(cache->shape().context_tokens, kWindowBlockTokens), kNoBlock),
      group_blocks_(CeilDiv(cache->shape().context_tokens, kGroupBlockTokens), kNoBlock) {
  const KvPlan& plan = cache->plan();
  saves_.reserve(static_cast<size_t>(plan.saves_per_step));
  save_slots_.reserve(saves_.capacity());
  step_states_.reserve(saves_.capacity() + 1);
  // Publish adds a step's points before it drops what they make superfluous.
  points_.reserve(static_cast<size_t>(plan.restore_points + plan.saves_per_step + 1));
}

absl::StatusOr<KvSequence> KvSequence::Open(KvCache* cache, uint64_t salt) {
  KvSequence sequence(cache, salt);
  std::lock_guard lock(cache->mutex());
  const absl::Status status = cache->OpenSequence();
  if (!status.ok()) {
    sequence.cache_ = nullptr;  // holds nothing
    return status;
  }
  sequence.SetState(cache->empty_state());
  return sequence;
}

KvSequence::KvSequence(KvSequence&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)),
      salt_(other.salt_),
      length_(other.length_),
      window_blocks_(std::move(other.window_blocks_)),
      group_blocks_(std::move(other.group_blocks_)),
      window_begin_(other.window_begin_),
      window_end_(other.window_end_),
      group_end_(other.group_end_),
      state_(other.state_),
      reserved_rows_(other.reserved_rows_),
      saves_(std::move(other.saves_)),
      save_slots_(std::move(other.save_slots_)),
      step_states_(std::move(other.step_states_)),
      short_step_(other.short_step_),
      points_(std::move(other.points_)),
      published_blocks_(other.published_blocks_),
      node_(other.node_),
      prompt_blocks_(other.prompt_blocks_),
      publishes_(other.publishes_) {}

KvSequence::~KvSequence() {
  if (cache_ == nullptr) return;
  std::lock_guard lock(cache_->mutex());
  Reset();
  cache_->state_pool().Release(state_);
  cache_->CloseSequence();
}

const std::byte* KvSequence::streams() const {
  return cache_->state(state_) + cache_->streams_offset_bytes();
}

absl::Status KvSequence::Reserve(int64_t rows, int64_t extra_slots, bool per_row_states) {
  const KvCacheShape& shape = cache_->shape();
  const int64_t verify_rows = shape.max_draft_tokens + 1;
  const int64_t limit =
      per_row_states ? verify_rows : std::max<int64_t>(shape.max_step_tokens, verify_rows);
  if (rows < 1 || rows > limit) {
    return InvalidArgument("a step of ", rows, " rows of a sequence is not in 1..", limit);
  }
  if (extra_slots < 0 || extra_slots > verify_rows) {
    return InvalidArgument(extra_slots, " draft slots are not in 0..", verify_rows);
  }
  const int64_t end = length_ + rows, slots_end = end + extra_slots;
  if (slots_end > shape.context_tokens) {
    return ContextFull("a step up to token ", slots_end, " of a sequence; the context holds ",
                       shape.context_tokens);
  }

  std::lock_guard lock(cache_->mutex());
  BlockPool &windows = cache_->window_pool(), &groups = cache_->group_pool();
  ReleaseSaves();
  if (!short_step_) ReleaseStepStates();
  reserved_rows_ = rows;
  for (int64_t row = 1; row <= rows; ++row) {
    const int64_t position = length_ + row;
    const bool boundary = position % kGroupBlockTokens == 0 &&
                          (end - position <= kRecentTokens || position % kSparseTokens == 0);
    if (per_row_states || boundary || row == rows) {
      saves_.push_back({.row = static_cast<int32_t>(row), .state = nullptr});
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
  const int64_t group_first = length_ / kGroupBlockTokens;
  const int64_t group_last = CeilDiv(end, kGroupBlockTokens);
  int32_t group_need = lacking(group_blocks_, group_first, group_last, group_end_, groups);
  if (group_need > groups.free_blocks() + groups.only_cached_blocks() && group_first < group_end_ &&
      groups.references(group_blocks_[group_first]) == 2 &&
      groups.cached_references(group_blocks_[group_first]) == 1 &&
      cache_->prefixes().Forget(group_blocks_[group_first])) {
    --group_need;  // the prefix cache gave up the last block instead of a copy
  }
  const absl::Status room =
      cache_->MakeRoom(lacking(window_blocks_, window_first, window_last, window_end_, windows),
                       group_need, static_cast<int32_t>(saves_.size()));
  if (!room.ok()) {
    saves_.clear();
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
  for (int64_t i = group_first; i < group_last; ++i) {
    int32_t& block = group_blocks_[i];
    if (i >= group_end_) {
      block = groups.Take();
    } else if (groups.shared(block)) {
      const int32_t copy = groups.Take();
      cache_->CopyGroupBlock(block, copy);
      groups.Release(std::exchange(block, copy));
    }
  }
  group_end_ = std::max(group_end_, group_last);
  for (StateSave& save : saves_) {
    save_slots_.push_back(cache_->state_pool().Take());
    save.state = cache_->state(save_slots_.back());
  }
  return absl::OkStatus();
}

SequenceRows KvSequence::Rows(int32_t first_row) const {
  return {.first_row = first_row,
          .rows = static_cast<int32_t>(reserved_rows_),
          .first_position = length_,
          .window_blocks = window_blocks_.data(),
          .group_blocks = group_blocks_.data(),
          .state_in = cache_->state(state_),
          .saves = saves_.data(),
          .save_count = static_cast<int32_t>(saves_.size())};
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
  std::lock_guard lock(cache_->mutex());
  if (rows > 0) {
    ReleaseStepStates();
    short_step_ = reserved_rows_ <= kShortStepRows;
    // References move from state_ and save_slots_ to step_states_.
    if (short_step_) {
      step_states_.push_back({.position = length_, .state = state_});
    } else {
      cache_->state_pool().Release(state_);
    }
    state_ = kNoBlock;
    for (size_t i = 0; i < saves_.size() && saves_[i].row <= rows; ++i) {
      step_states_.push_back({.position = length_ + saves_[i].row, .state = save_slots_[i]});
      save_slots_[i] = kNoBlock;
    }
    assert(step_states_.back().position == length_ + rows);
    state_ = step_states_.back().state;
    cache_->state_pool().Add(state_);
    length_ += rows;
  }
  ReleaseSaves();
  ReleaseGroupBlocksFrom(CeilDiv(length_, kGroupBlockTokens));
}

void KvSequence::Publish(absl::Span<const int32_t> timeline, int64_t prompt_tokens) {
  std::lock_guard lock(cache_->mutex());
  PrefixCache& prefixes = cache_->prefixes();
  BlockPool& groups = cache_->group_pool();
  const int64_t known = std::min<int64_t>(length_, static_cast<int64_t>(timeline.size()));
  const int64_t before = published_blocks_;
  while (publishes_ && (published_blocks_ + 1) * kGroupBlockTokens <= known) {
    const int32_t* tokens = timeline.data() + published_blocks_ * kGroupBlockTokens;
    int32_t& block = group_blocks_[published_blocks_];
    PrefixCache::Node next = prefixes.Find(node_, salt_, tokens);
    if (next == PrefixCache::kNone) {
      next = prefixes.Insert(node_, salt_, tokens, block);
      if (next == PrefixCache::kNone) break;
    } else if (prefixes.group_block(next) != block) {
      // By the row rule the same bits: one copy is enough.
      groups.Add(prefixes.group_block(next));
      groups.Release(std::exchange(block, prefixes.group_block(next)));
    }
    node_ = next;
    ++published_blocks_;
  }
  if (published_blocks_ > before) prefixes.Touch(node_);
  // A turn's answer is part of the next one's prompt.
  const int64_t prompt_blocks = std::min(prompt_tokens / kGroupBlockTokens, published_blocks_);
  if (prompt_blocks > prompt_blocks_) {
    prefixes.MarkPrompt(NodeAt(prompt_blocks * kGroupBlockTokens));
    prompt_blocks_ = prompt_blocks;
  }
  for (const SavedState& saved : step_states_) {
    if (saved.position > 0 && saved.position % kGroupBlockTokens == 0) {
      AddPoint(saved.position, saved.state, false);
    }
  }
  DropUnwantedPoints();
  if (!short_step_) ReleaseStepStates();
  ReleaseWindowBlocksBefore(
      FirstWindowBlock(step_states_.empty() ? length_ : step_states_.front().position));
}

void KvSequence::MarkTurnEnd() {
  if (length_ == 0) return;
  std::lock_guard lock(cache_->mutex());
  AddPoint(length_, state_, true);
  int64_t marked = std::count_if(points_.begin(), points_.end(),
                                 [](const RestorePoint& point) { return point.turn_end; });
  for (RestorePoint& point : points_) {
    if (marked <= kTurnEnds) break;
    marked -= point.turn_end;
    point.turn_end = false;
  }
  DropUnwantedPoints();
}

int64_t KvSequence::RestorablePosition(int64_t tokens) const {
  if (tokens >= length_) return length_;
  int64_t position = 0;
  if (short_step_) {
    for (const SavedState& saved : step_states_) {
      if (saved.position <= tokens) position = saved.position;
    }
  }
  for (const RestorePoint& point : points_) {
    if (point.position <= tokens) position = std::max(position, point.position);
  }
  return position;
}

int64_t KvSequence::Rewind(int64_t tokens) {
  std::lock_guard lock(cache_->mutex());
  return RewindLocked(tokens);
}

int64_t KvSequence::RewindLocked(int64_t tokens) {
  const int64_t target = RestorablePosition(tokens);
  ReleaseSaves();
  if (target == length_) return target;
  cache_->prefixes().Touch(node_);
  if (target == 0) {
    Reset();
    return 0;
  }
  ReleasePointsAfter(target);
  const auto saved =
      std::find_if(step_states_.begin(), step_states_.end(),
                   [&](const SavedState& state) { return state.position == target; });
  if (short_step_ && saved != step_states_.end()) {
    // The table still has the blocks that every row of the step sees.
    SetState(saved->state);
    for (auto later = saved + 1; later != step_states_.end(); ++later) {
      cache_->state_pool().Release(later->state);
    }
    step_states_.erase(saved + 1, step_states_.end());
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
  ReleaseGroupBlocksFrom(CeilDiv(target, kGroupBlockTokens));
  for (; published_blocks_ > target / kGroupBlockTokens; --published_blocks_) {
    node_ = cache_->prefixes().parent(node_);
  }
  prompt_blocks_ = std::min(prompt_blocks_, published_blocks_);
  length_ = target;
  AddPointsOfNodes();
  return target;
}

PrefixReuse KvSequence::AdoptPrefix(absl::Span<const int32_t> tokens, int64_t common_tokens,
                                    int64_t max_tokens) {
  std::lock_guard lock(cache_->mutex());
  const PrefixCache& prefixes = cache_->prefixes();
  const int64_t length = length_;
  const int64_t own_known = std::min({common_tokens, max_tokens, length});
  const int64_t own = RestorablePosition(own_known);
  int64_t matched = 0, cached = 0;
  PrefixCache::Node node = PrefixCache::kRoot, last = PrefixCache::kRoot;
  while (matched + kGroupBlockTokens <= max_tokens) {
    node = prefixes.Find(node, salt_, tokens.data() + matched);
    if (node == PrefixCache::kNone) break;
    matched += kGroupBlockTokens;
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
  } else if (max_tokens - known < kGroupBlockTokens) {
    reuse.limit = ReuseLimit::kIncompleteBlock;
  } else {
    reuse.limit = ReuseLimit::kNotCached;
  }
  return reuse;
}

absl::StatusOr<KvSequence> KvSequence::Fork() {
  KvSequence fork(cache_, salt_);
  std::lock_guard lock(cache_->mutex());
  const absl::Status status = cache_->OpenSequence();
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
  fork.group_end_ = CeilDiv(length_, kGroupBlockTokens);
  for (int64_t i = 0; i < fork.group_end_; ++i) {
    cache_->group_pool().Add(fork.group_blocks_[i] = group_blocks_[i]);
  }
  fork.SetState(state_);
  for (const SavedState& saved : step_states_) {
    cache_->state_pool().Add(saved.state);
    fork.step_states_.push_back(saved);
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
  return fork;
}

int64_t KvSequence::held_bytes() const {
  const KvPlan& plan = cache_->plan();
  return (window_end_ - window_begin_) * plan.window_block_bytes +
         group_end_ * plan.group_block_bytes + plan.state_bytes;
}

void KvSequence::TakeOver(PrefixCache::Node node, int64_t tokens, int64_t kept) {
  PrefixCache& prefixes = cache_->prefixes();
  BlockPool &windows = cache_->window_pool(), &groups = cache_->group_pool();
  prefixes.Touch(node_);
  prefixes.Touch(node);
  // What is taken is held before anything is given up.
  const int64_t blocks = tokens / kGroupBlockTokens;
  PrefixCache::Node at = node;
  for (int64_t i = blocks - 1; i >= 0; --i, at = prefixes.parent(at)) {
    groups.Add(prefixes.group_block(at));
    if (i < group_end_) groups.Release(group_blocks_[i]);
    group_blocks_[i] = prefixes.group_block(at);
  }
  ReleaseGroupBlocksFrom(blocks);
  group_end_ = blocks;
  const Snapshot snapshot = prefixes.snapshot(node);
  for (const int32_t block : snapshot.window_blocks) windows.Add(block);
  ReleaseWindowBlocksBefore(window_end_);
  window_end_ = tokens / kWindowBlockTokens;
  window_begin_ = window_end_ - 2;
  std::copy_n(snapshot.window_blocks, 2, window_blocks_.begin() + window_begin_);
  SetState(snapshot.state);
  ReleaseSaves();
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
  const int64_t block = position / kGroupBlockTokens;
  if (position % kGroupBlockTokens != 0 || block > published_blocks_) return PrefixCache::kRoot;
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
    RestorePoint point{.position = block * kGroupBlockTokens};
    if (Wanted(point) && cache_->prefixes().snapshot(node).present()) {
      AddPoint(point.position, kNoBlock, false);
    }
    node = cache_->prefixes().parent(node);
  }
}

bool KvSequence::Wanted(const RestorePoint& point) const {
  return point.turn_end || point.position % kSparseTokens == 0 ||
         (point.position % kGroupBlockTokens == 0 && length_ - point.position <= kRecentTokens);
}

void KvSequence::DropUnwantedPoints() {
  const auto unwanted = [&](const RestorePoint& point) {
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

void KvSequence::ReleaseStepStates() {
  for (const SavedState& saved : step_states_) cache_->state_pool().Release(saved.state);
  step_states_.clear();
  short_step_ = false;
}

void KvSequence::ReleaseSaves() {
  for (const int32_t slot : save_slots_) {
    if (slot != kNoBlock) cache_->state_pool().Release(slot);
  }
  save_slots_.clear();
  saves_.clear();
  reserved_rows_ = 0;
}

void KvSequence::ReleaseWindowBlocksBefore(int64_t entry) {
  for (; window_begin_ < std::min(entry, window_end_); ++window_begin_) {
    cache_->window_pool().Release(std::exchange(window_blocks_[window_begin_], kNoBlock));
  }
}

void KvSequence::ReleaseGroupBlocksFrom(int64_t entry) {
  for (; group_end_ > entry; --group_end_) {
    cache_->group_pool().Release(std::exchange(group_blocks_[group_end_ - 1], kNoBlock));
  }
}

void KvSequence::SetState(int32_t state) {
  cache_->state_pool().Add(state);
  if (state_ != kNoBlock) cache_->state_pool().Release(state_);
  state_ = state;
}

void KvSequence::Reset() {
  cache_->prefixes().Touch(node_);
  ReleaseSaves();
  ReleaseStepStates();
  ReleasePointsAfter(0);
  ReleaseWindowBlocksBefore(window_end_);
  window_begin_ = window_end_ = 0;
  ReleaseGroupBlocksFrom(0);
  SetState(cache_->empty_state());
  length_ = 0;
  published_blocks_ = 0;
  node_ = PrefixCache::kRoot;
  prompt_blocks_ = 0;
  publishes_ = true;
}

}  // namespace dsv4
