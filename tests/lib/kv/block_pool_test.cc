// SPDX-License-Identifier: Apache-2.0
#include "lib/kv/block_pool.h"

#include <set>

#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

TEST_CASE("every block is taken once, and a full pool says which kind is full") {
  BlockPool pool("window", 3);
  std::set<int32_t> taken;
  for (int i = 0; i < 3; ++i) taken.insert(pool.Take().value());
  REQUIRE(taken == std::set<int32_t>{0, 1, 2});
  REQUIRE_FAILS(pool.Take(), absl::StatusCode::kAborted, "all 3 window blocks");
  pool.Release(1);
  REQUIRE(pool.free_blocks() == 1);
  REQUIRE(pool.Take().value() == 1);
}

TEST_CASE("a block is free when its last reference is given back") {
  BlockPool pool("window", 1);
  const int32_t block = pool.Take().value();
  pool.AddReference(block);
  pool.Release(block);
  REQUIRE(pool.free_blocks() == 0);
  pool.Release(block);
  REQUIRE(pool.free_blocks() == 1);
}

}  // namespace
}  // namespace dsv4
