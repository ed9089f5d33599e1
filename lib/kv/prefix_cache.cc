// SPDX-License-Identifier: Apache-2.0
#include "lib/kv/prefix_cache.h"

#include <algorithm>
#include <bit>
#include <tuple>

#include "absl/hash/hash.h"
#include "absl/types/span.h"

namespace dsv4 {
namespace {

constexpr int64_t kSparseBlocks = 16;  // 4096 tokens: see KvCache::kSparseTokens
constexpr BlockPool::Holder kMine = BlockPool::Holder::kPrefixCache;

// At most half full, so that probes end soon.
size_t TableSize(int32_t nodes) { return std::bit_ceil(static_cast<size_t>(nodes) * 2 + 1); }

}  // namespace

int64_t PrefixCache::HostBytes(int32_t compressed_kv_blocks) {
  return int64_t{compressed_kv_blocks} * static_cast<int64_t>(sizeof(Entry) + sizeof(Node)) +
         static_cast<int64_t>(TableSize(compressed_kv_blocks) * sizeof(Node));
}

PrefixCache::PrefixCache(BlockPool* windows, BlockPool* compressed, BlockPool* states)
    : windows_(windows),
      compressed_(compressed),
      states_(states),
      nodes_(static_cast<size_t>(compressed->size())),
      table_(TableSize(compressed->size()), kNone) {
  free_.reserve(nodes_.size());
  for (Node node = compressed->size() - 1; node >= 0; --node) free_.push_back(node);
}

uint64_t PrefixCache::HashOf(Node parent, uint64_t salt, const int32_t* tokens) const {
  const uint64_t before = parent == kRoot ? salt : nodes_[parent].hash;
  return absl::HashOf(before, absl::MakeConstSpan(tokens, kCompressedKvBlockTokens));
}

PrefixCache::Node PrefixCache::Find(Node parent, uint64_t salt, const int32_t* tokens) const {
  const uint64_t hash = HashOf(parent, salt, tokens);
  for (size_t slot = hash & (table_.size() - 1); table_[slot] != kNone;
       slot = (slot + 1) & (table_.size() - 1)) {
    const Entry& entry = nodes_[table_[slot]];
    if (entry.hash == hash && entry.parent == parent && entry.salt == salt &&
        std::equal(entry.tokens, entry.tokens + kCompressedKvBlockTokens, tokens)) {
      return table_[slot];
    }
  }
  return kNone;
}

PrefixCache::Node PrefixCache::Insert(Node parent, uint64_t salt, const int32_t* tokens,
                                      int32_t compressed_kv_block) {
  if (free_.empty()) return kNone;
  const Node node = free_.back();
  free_.pop_back();
  Entry& entry = nodes_[node];
  entry.parent = parent;
  entry.children = 0;
  entry.compressed_kv_block = compressed_kv_block;
  entry.prompt = false;
  entry.salt = salt;
  entry.hash = HashOf(parent, salt, tokens);
  entry.end = (parent == kRoot ? 0 : nodes_[parent].end) + kCompressedKvBlockTokens;
  entry.used = ++clock_;
  std::copy_n(tokens, kCompressedKvBlockTokens, entry.tokens);
  if (parent != kRoot) ++nodes_[parent].children;
  compressed_->Add(compressed_kv_block, kMine);
  size_t slot = entry.hash & (table_.size() - 1);
  while (table_[slot] != kNone) slot = (slot + 1) & (table_.size() - 1);
  table_[slot] = node;
  return node;
}

void PrefixCache::SetSnapshot(Node node, const Snapshot& snapshot) {
  nodes_[node].snapshot = snapshot;
  states_->Add(snapshot.state, kMine);
  for (const int32_t block : snapshot.window_blocks) windows_->Add(block, kMine);
}

void PrefixCache::MarkPrompt(Node node) {
  for (; node >= 0 && !nodes_[node].prompt; node = nodes_[node].parent) nodes_[node].prompt = true;
}

void PrefixCache::Touch(Node node) {
  ++clock_;
  for (; node >= 0; node = nodes_[node].parent) nodes_[node].used = clock_;
}

bool PrefixCache::EvictLeaf() {
  Node victim = kNone;
  const auto order = [&](Node node) {
    const Entry& entry = nodes_[node];
    return std::tuple(entry.prompt, entry.used, -entry.end);
  };
  for (Node node = 0; node < compressed_->size(); ++node) {
    const Entry& entry = nodes_[node];
    if (entry.compressed_kv_block == kNoBlock || entry.children > 0) continue;
    if (!compressed_->only_cached(entry.compressed_kv_block)) continue;
    if (victim == kNone || order(node) < order(victim)) victim = node;
  }
  if (victim == kNone) return false;
  Remove(victim);
  return true;
}

bool PrefixCache::EvictSnapshot(const BlockPool& pool, bool prompts) {
  Node victim = kNone;
  // First snapshots inside a text that does not branch there, down to one in kSparseBlocks. The
  // others are where texts end or branch, from where they most likely continue. Of snapshots used
  // at the same time, those at rounder positions divide a long text better and stay longer.
  const auto order = [&](Node node) {
    const Entry& entry = nodes_[node];
    const int64_t blocks = entry.end / kCompressedKvBlockTokens;
    const bool kept_longer = entry.children != 1 || blocks % kSparseBlocks == 0;
    return std::tuple(kept_longer, entry.prompt, entry.used,
                      std::countr_zero(static_cast<uint64_t>(blocks)), entry.end);
  };
  for (Node node = 0; node < compressed_->size(); ++node) {
    const Snapshot& snapshot = nodes_[node].snapshot;
    if (nodes_[node].compressed_kv_block == kNoBlock || !snapshot.present()) continue;
    if (nodes_[node].prompt && !prompts) continue;
    const bool frees = &pool == states_ ? states_->only_cached(snapshot.state)
                                        : windows_->only_cached(snapshot.window_blocks[0]) ||
                                              windows_->only_cached(snapshot.window_blocks[1]);
    if (!frees) continue;
    if (victim == kNone || order(node) < order(victim)) victim = node;
  }
  if (victim == kNone) return false;
  DropSnapshot(nodes_[victim]);
  return true;
}

bool PrefixCache::Forget(int32_t compressed_kv_block) {
  for (Node node = 0; node < compressed_->size(); ++node) {
    if (nodes_[node].compressed_kv_block != compressed_kv_block) continue;
    if (nodes_[node].children > 0) return false;
    Remove(node);
    return true;
  }
  return false;
}

size_t PrefixCache::SlotOf(Node node) const {
  size_t slot = nodes_[node].hash & (table_.size() - 1);
  while (table_[slot] != node) slot = (slot + 1) & (table_.size() - 1);
  return slot;
}

void PrefixCache::DropSnapshot(Entry& entry) {
  if (!entry.snapshot.present()) return;
  states_->Release(entry.snapshot.state, kMine);
  for (const int32_t block : entry.snapshot.window_blocks) windows_->Release(block, kMine);
  entry.snapshot = {};
}

void PrefixCache::Remove(Node node) {
  Entry& entry = nodes_[node];
  DropSnapshot(entry);
  compressed_->Release(entry.compressed_kv_block, kMine);
  entry.compressed_kv_block = kNoBlock;
  if (entry.parent != kRoot) --nodes_[entry.parent].children;
  // Close the gap: an entry behind it moves up unless that would put it before its own first slot.
  const size_t mask = table_.size() - 1;
  size_t gap = SlotOf(node);
  for (size_t slot = (gap + 1) & mask; table_[slot] != kNone; slot = (slot + 1) & mask) {
    const size_t first = nodes_[table_[slot]].hash & mask;
    if (((slot - first) & mask) >= ((slot - gap) & mask)) {
      table_[gap] = table_[slot];
      gap = slot;
    }
  }
  table_[gap] = kNone;
  free_.push_back(node);
}

}  // namespace dsv4
