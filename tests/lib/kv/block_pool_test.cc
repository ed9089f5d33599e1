// SPDX-License-Identifier: Apache-2.0
#include "lib/kv/block_pool.h"

#include <set>

#include "tests/support/catch.h"

namespace dsv4 {
namespace {

constexpr BlockPool::Holder kCache = BlockPool::Holder::kPrefixCache;

TEST_CASE("every block is taken once, and taken again once released") {
  BlockPool pool("window", 3);
  std::set<int32_t> taken;
  for (int i = 0; i < 3; ++i) taken.insert(pool.Take());
  REQUIRE(taken == std::set<int32_t>{0, 1, 2});
  REQUIRE(pool.free_blocks() == 0);
  pool.Release(1);
  REQUIRE(pool.free_blocks() == 1);
  REQUIRE(pool.Take() == 1);
}

TEST_CASE("a block is free when its last reference is given back, whoever held it") {
  BlockPool pool("window", 1);
  const int32_t block = pool.Take();
  REQUIRE_FALSE(pool.shared(block));
  pool.Add(block);
  REQUIRE(pool.shared(block));
  pool.Add(block, kCache);
  pool.Release(block);
  pool.Release(block);
  REQUIRE(pool.free_blocks() == 0);
  pool.Release(block, kCache);
  REQUIRE(pool.free_blocks() == 1);
}

TEST_CASE("the pool counts the blocks that only the prefix cache holds") {
  BlockPool pool("window", 2);
  const int32_t block = pool.Take();
  pool.Add(block, kCache);
  REQUIRE(pool.only_cached_blocks() == 0);
  pool.Release(block);
  REQUIRE(pool.only_cached(block));
  pool.Add(block, kCache);  // in two snapshots
  REQUIRE(pool.only_cached_blocks() == 1);
  pool.Add(block);
  REQUIRE(pool.only_cached_blocks() == 0);
  pool.Release(block);
  pool.Release(block, kCache);
  REQUIRE(pool.only_cached_blocks() == 1);
  pool.Release(block, kCache);
  REQUIRE(pool.only_cached_blocks() == 0);
  REQUIRE(pool.free_blocks() == 2);
}

}  // namespace
}  // namespace dsv4
