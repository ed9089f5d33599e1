// SPDX-License-Identifier: Apache-2.0
#include "lib/kv/kv_cache.h"

#include <cstring>
#include <vector>

#include "lib/kv/kv_sequence.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

KvCacheShape Shape() {
  return {.compress_ratios = {0, 4, 128},
          .row_format = RowFormat::kBf16,
          .context_tokens = 4096,
          .cache_tokens = 1024,
          .max_sequences = 2,
          .max_step_tokens = 256};
}

TEST_CASE("the plan is that of the rows, by hand, and is what a cache then takes") {
  const KvPlan plan = PlanKvCache(Shape()).value();
  // 127 + 8 + 256 + 1 tokens are 7 window blocks, one more for the alignment; 9 restore points at
  // block boundaries of 2 blocks, 8 turn ends of 3; for two sequences. 6 compressed KV blocks bring
  // one snapshot.
  REQUIRE(plan.window_blocks == 2 * (8 + 18 + 24) + 2);
  REQUIRE(plan.compressed_kv_blocks == 1024 / 256 + 2);
  // The last step's 3 states, this one's 3, the points' 17; the snapshot's and the empty state.
  REQUIRE(plan.state_slots == 2 * (3 + 3 + 17) + 2);
  // Three layers of 64 rows of 1024 bytes.
  REQUIRE(plan.window_block_bytes == 3 * 64 * 1024);
  REQUIRE(plan.bytes.window == plan.window_blocks * plan.window_block_bytes);
  // 64 rows and keys of 64 bytes and 4 scales (ratio 4), 2 rows (ratio 128).
  REQUIRE(plan.compressed_kv_block_bytes == (64 + 2) * 1024 + 64 * (64 + 4));
  REQUIRE(plan.bytes.compressed == 6 * (64 + 2) * 1024);
  REQUIRE(plan.bytes.index_keys == 6 * 64 * (64 + 4));
  // 3 triples of 512 and of 128 floats, and one triple of 512.
  REQUIRE(plan.streams_offset_bytes == 4 * (9 * 512 + 9 * 128 + 3 * 512));
  REQUIRE(plan.state_bytes == plan.streams_offset_bytes);
  REQUIRE(plan.bytes.states == plan.state_slots * plan.state_bytes);

  const std::unique_ptr<Device> device = Device::Open({.threads = 1}).value();
  const std::unique_ptr<KvCache> cache = KvCache::Create(Shape(), *device).value();
  REQUIRE(cache->bytes().total() == plan.bytes.total());
  REQUIRE(cache->use().windows.size == plan.window_blocks);
  REQUIRE(cache->use().compressed.free == 6);
  REQUIRE(cache->use().states.free == plan.state_slots - 1);
}

TEST_CASE("drafts and streams are planned for") {
  KvCacheShape shape = Shape();
  shape.max_draft_tokens = 7;
  shape.streams_bytes = 4 * 96 * 2;
  const KvPlan plan = PlanKvCache(shape).value();
  REQUIRE(plan.window_blocks == 2 * (8 + 18 + 24) + 2);  // 127 + 8 + 256 + 8 tokens
  REQUIRE(plan.state_slots == 2 * (9 + 8 + 17) + 2);
  REQUIRE(plan.streams_offset_bytes == 4 * (9 * 512 + 9 * 128 + 3 * 512));
  REQUIRE(plan.state_bytes == plan.streams_offset_bytes + 768);
}

TEST_CASE("a shape of too many blocks is refused") {
  KvCacheShape shape = Shape();
  shape.cache_tokens = int64_t{1} << 40;
  REQUIRE_FAILS(PlanKvCache(shape), absl::StatusCode::kInvalidArgument, "2^31 blocks");
}

TEST_CASE("rows of all layers, kinds and blocks, and states, lie apart") {
  const std::unique_ptr<Device> device = Device::Open({.threads = 1}).value();
  KvCacheShape shape = Shape();
  shape.row_format =
      GENERATE(RowFormat::kBf16, RowFormat::kF32, RowFormat::kPacked, RowFormat::kFp8PerTensor);
  shape.streams_bytes = 100;
  const std::unique_ptr<KvCache> cache = KvCache::Create(shape, *device).value();
  // Write a number of its own into each row and state, then find them all unharmed.
  const auto visit = [&](auto&& row_at) {
    const MutexLock lock(cache->mutex());
    uint8_t tag = 1;
    const auto rows = [&](const RowPool& pool, int32_t blocks, int64_t per_block) {
      for (int32_t b = 0; b < blocks; ++b) {
        for (int64_t slot = 0; slot < per_block; ++slot) {
          row_at(pool.Row(b, slot), pool.row_bytes, tag = static_cast<uint8_t>(tag * 13 + 7));
          row_at(pool.Scales(b, slot), RowScaleBytes(pool.format), tag);
        }
      }
    };
    for (int64_t layer = 0; layer < 3; ++layer) {
      const LayerCache& at = cache->layer(layer);
      rows(at.window, cache->window_pool().size(), 64);
      if (layer == 1) rows(at.compressed, cache->compressed_pool().size(), 64);
      if (layer == 1) rows(at.index_keys, cache->compressed_pool().size(), 64);
      if (layer == 2) rows(at.compressed, cache->compressed_pool().size(), 2);
    }
    for (int32_t slot = 0; slot < cache->state_pool().size(); ++slot) {
      row_at(cache->state(slot), cache->state_bytes(), tag = static_cast<uint8_t>(tag * 13 + 7));
    }
  };
  visit([](std::byte* row, int64_t bytes, uint8_t tag) {
    std::memset(row, tag, static_cast<size_t>(bytes));
  });
  int64_t harmed = 0;
  visit([&](const std::byte* row, int64_t bytes, uint8_t tag) {
    for (int64_t i = 0; i < bytes; ++i) harmed += row[i] != std::byte{tag};
  });
  REQUIRE(harmed == 0);
}

TEST_CASE("block offsets are 64-bit") {
  std::byte first{};
  const RowPool pool{.base = &first, .block_stride_bytes = 1'000'000, .row_bytes = 1024};
  REQUIRE(pool.Row(5000, 3) - &first == 5'000'003'072);
}

}  // namespace
}  // namespace dsv4
