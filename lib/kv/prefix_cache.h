// SPDX-License-Identifier: Apache-2.0
// A trie of the token sequences that have rows in the cache. A node stands for the 256 tokens after
// its parent's. It has a compressed KV block and may have a snapshot to resume from. Lookups
// compare tokens; a hash only finds candidates. Fixed arrays: nothing is allocated after
// construction. Guarded by the mutex of the cache that owns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/op/kv_layout.h"
#include "lib/kv/block_pool.h"

namespace dsv4 {

// What is needed, besides the compressed KV blocks, to resume at a position that is a multiple of
// 256.
struct Snapshot {
  int32_t window_blocks[2] = {kNoBlock, kNoBlock};  // the 128 tokens before it
  int32_t state = kNoBlock;
  bool present() const { return state != kNoBlock; }
};

class PrefixCache {
 public:
  using Node = int32_t;
  static constexpr Node kRoot = -1;  // the parent of first nodes, of every salt
  static constexpr Node kNone = -2;

  // Bytes of a prefix cache over so many compressed KV blocks.
  static int64_t HostBytes(int32_t compressed_kv_blocks);

  // One node for each compressed KV block at most. The pools must outlive it.
  PrefixCache(BlockPool* windows, BlockPool* compressed, BlockPool* states);

  // The child of `parent` with these 256 tokens, or kNone. Salts separate callers who must not see
  // each other's prefixes. A node has the salt of its parent.
  Node Find(Node parent, uint64_t salt, const int32_t* tokens) const;
  // Adds such a child, with a reference to its compressed KV block. kNone if no node is free.
  // REQUIRES: Find returned kNone; no other node has the block.
  Node Insert(Node parent, uint64_t salt, const int32_t* tokens, int32_t compressed_kv_block);

  Node parent(Node node) const { return nodes_[node].parent; }
  int32_t compressed_kv_block(Node node) const { return nodes_[node].compressed_kv_block; }
  const Snapshot& snapshot(Node node) const { return nodes_[node].snapshot; }
  // Gives the node a snapshot, with references to its blocks. REQUIRES: it has none.
  void SetSnapshot(Node node, const Snapshot& snapshot);
  // Marks the node and its ancestors as a prompt.
  void MarkPrompt(Node node);
  // Marks the node and its ancestors as used now.
  void Touch(Node node);

  // Evict blocks that only the prefix cache holds: generated text before prompts, then the least
  // recently used. False if there is nothing to evict.
  bool EvictLeaf();  // a node without children, for its compressed KV block
  // A snapshot, to free its blocks of `pool` (the state pool or the window pool). Snapshots inside
  // long texts go before those at ends and branches. prompts false: only of generated text.
  bool EvictSnapshot(const BlockPool& pool, bool prompts = true);
  // Removes the node of a compressed KV block if it has no children; false otherwise.
  bool Forget(int32_t compressed_kv_block);

  int32_t nodes() const { return static_cast<int32_t>(nodes_.size() - free_.size()); }

 private:
  struct Entry {
    Node parent = kNone;
    int32_t children = 0;
    int32_t compressed_kv_block = kNoBlock;  // kNoBlock: the entry is free
    bool prompt = false;
    uint64_t salt = 0;
    uint64_t hash = 0;  // of the salt and all tokens up to the node's end
    uint64_t used = 0;  // clock_ of the last use
    int64_t end = 0;    // tokens from the start to the node's end
    Snapshot snapshot;
    int32_t tokens[kCompressedKvBlockTokens] = {};
  };

  uint64_t HashOf(Node parent, uint64_t salt, const int32_t* tokens) const;
  size_t SlotOf(Node node) const;
  void DropSnapshot(Entry& entry);
  void Remove(Node node);

  BlockPool* windows_;
  BlockPool* compressed_;
  BlockPool* states_;
  std::vector<Entry> nodes_;
  std::vector<Node> free_;
  std::vector<Node> table_;  // open addressing by hash, a power of two; kNone: empty
  uint64_t clock_ = 0;
};

}  // namespace dsv4
