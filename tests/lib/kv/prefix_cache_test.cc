// SPDX-License-Identifier: Apache-2.0
#include "lib/kv/prefix_cache.h"

#include <map>
#include <random>
#include <vector>

#include "tests/support/catch.h"

namespace dsv4 {
namespace {

using Node = PrefixCache::Node;

struct Pools {
  explicit Pools(int32_t blocks) : compressed("compressed block", blocks) {}

  // A node whose block has no other owner.
  Node Add(Node parent, int32_t token, uint64_t salt = 0) {
    const std::vector<int32_t> tokens(256, token);
    const int32_t block = compressed.Take();
    const Node node = prefixes.Insert(parent, salt, tokens.data(), block);
    compressed.Release(block);
    return node;
  }
  Node Find(Node parent, int32_t token, uint64_t salt = 0) const {
    const std::vector<int32_t> tokens(256, token);
    return prefixes.Find(parent, salt, tokens.data());
  }
  void AddSnapshot(Node node) {
    Snapshot snapshot{.window_blocks = {windows.Take(), windows.Take()}, .state = states.Take()};
    prefixes.SetSnapshot(node, snapshot);
    for (const int32_t block : snapshot.window_blocks) windows.Release(block);
    states.Release(snapshot.state);
  }

  BlockPool windows{"window", 64}, compressed, states{"state", 32};
  PrefixCache prefixes{&windows, &compressed, &states};
};

TEST_CASE("a node is found by its parent, salt and every one of its tokens") {
  Pools pools(8);
  const Node first = pools.Add(PrefixCache::kRoot, 1);
  const Node second = pools.Add(first, 1);
  REQUIRE(pools.Find(PrefixCache::kRoot, 1) == first);
  REQUIRE(pools.Find(first, 1) == second);
  REQUIRE(pools.Find(second, 1) == PrefixCache::kNone);
  REQUIRE(pools.Find(first, 2) == PrefixCache::kNone);
  REQUIRE(pools.Find(PrefixCache::kRoot, 1, 9) == PrefixCache::kNone);
  for (const size_t changed : {0, 100, 255}) {
    std::vector<int32_t> tokens(256, 1);
    tokens[changed] = 2;
    REQUIRE(pools.prefixes.Find(PrefixCache::kRoot, 0, tokens.data()) == PrefixCache::kNone);
  }
}

TEST_CASE("leaves go first, generated text before prompts, then the least recently used") {
  Pools pools(8);
  const Node prompt = pools.Add(PrefixCache::kRoot, 1);
  const Node prompt_end = pools.Add(prompt, 2);
  pools.prefixes.MarkPrompt(prompt_end);
  const Node old_text = pools.Add(prompt_end, 3);
  const Node new_text = pools.Add(prompt_end, 4);
  const Node other_prompt = pools.Add(PrefixCache::kRoot, 5);
  pools.prefixes.MarkPrompt(other_prompt);
  pools.prefixes.Touch(old_text);
  const auto gone = [&](Node parent, int32_t token) {
    return pools.Find(parent, token) == PrefixCache::kNone;
  };
  REQUIRE(pools.prefixes.EvictLeaf());
  REQUIRE(gone(prompt_end, 4));  // old_text was touched since
  REQUIRE(new_text >= 0);
  // Held by a sequence: passed over.
  pools.compressed.Add(pools.prefixes.compressed_kv_block(old_text));
  REQUIRE(pools.prefixes.EvictLeaf());
  REQUIRE(gone(PrefixCache::kRoot, 5));
  REQUIRE_FALSE(pools.prefixes.EvictLeaf());
  pools.compressed.Release(pools.prefixes.compressed_kv_block(old_text));
  REQUIRE(pools.prefixes.EvictLeaf());
  REQUIRE(gone(prompt_end, 3));
  REQUIRE(pools.prefixes.EvictLeaf());
  REQUIRE(gone(prompt, 2));
  REQUIRE(pools.prefixes.EvictLeaf());
  REQUIRE(pools.prefixes.nodes() == 0);
  REQUIRE(pools.compressed.free_blocks() == 8);
}

TEST_CASE("snapshots are evicted alone: inside texts first, the roundest position last") {
  Pools pools(24);
  std::vector<Node> nodes;
  Node node = PrefixCache::kRoot;
  for (int32_t i = 0; i < 18; ++i) {
    nodes.push_back(node = pools.Add(node, i));
    // Blocks 1, 2, 3, 4 of 256 tokens; 7, where another text parts; 16, 17; 18, the end.
    if (i < 4 || i == 6 || i > 14) pools.AddSnapshot(node);
  }
  pools.Add(nodes[6], 100);
  pools.prefixes.Touch(node);
  for (const size_t next : {0, 2, 16, 1, 3, 6, 17, 15}) {
    CAPTURE(next);
    REQUIRE(pools.prefixes.snapshot(nodes[next]).present());
    const int32_t free = pools.states.free_blocks();
    REQUIRE(pools.prefixes.EvictSnapshot(pools.states));
    REQUIRE_FALSE(pools.prefixes.snapshot(nodes[next]).present());
    REQUIRE(pools.states.free_blocks() == free + 1);
  }
  REQUIRE_FALSE(pools.prefixes.EvictSnapshot(pools.states));
  REQUIRE(pools.windows.free_blocks() == 64);
  REQUIRE(pools.prefixes.nodes() == 19);
  pools.AddSnapshot(nodes[2]);
  const Snapshot held = pools.prefixes.snapshot(nodes[2]);
  pools.states.Add(held.state);
  REQUIRE_FALSE(pools.prefixes.EvictSnapshot(pools.states));
  REQUIRE(pools.prefixes.EvictSnapshot(pools.windows));
}

TEST_CASE("random nodes come and go as in a map") {
  constexpr int32_t kBlocks = 500;
  Pools pools(kBlocks);
  std::map<std::pair<Node, int32_t>, Node> model;  // parent and token -> node
  std::mt19937 random(7);
  int64_t wrong = 0;
  for (int i = 0; i < 6000; ++i) {
    // Mostly small tries of few tokens, so that nodes are met again.
    Node parent = PrefixCache::kRoot;
    for (uint32_t depth = random() % 6; depth > 0; --depth) {
      const auto child = model.find({parent, static_cast<int32_t>(random() % 5)});
      if (child != model.end()) parent = child->second;
    }
    const int32_t token = static_cast<int32_t>(random() % 5);
    const auto known = model.find({parent, token});
    wrong +=
        pools.Find(parent, token) != (known == model.end() ? PrefixCache::kNone : known->second);
    if (known == model.end() && pools.compressed.free_blocks() > 0) {
      model[{parent, token}] = pools.Add(parent, token);
    }
    for (uint32_t evictions = random() % 40 == 0 ? random() % 20 : 0; evictions > 0; --evictions) {
      if (!pools.prefixes.EvictLeaf()) break;
      for (auto it = model.begin(); it != model.end();) {
        const bool found = pools.Find(it->first.first, it->first.second) == it->second;
        it = found ? std::next(it) : model.erase(it);
      }
      wrong += static_cast<int32_t>(model.size()) != pools.prefixes.nodes();
    }
  }
  REQUIRE(wrong == 0);
  REQUIRE(pools.prefixes.nodes() > 50);
  while (pools.prefixes.EvictLeaf()) {
  }
  REQUIRE(pools.compressed.free_blocks() == kBlocks);
}

}  // namespace
}  // namespace dsv4
