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

TEST_CASE("the planned bytes are those of the rows, by hand") {
  const std::unique_ptr<Device> device = Device::Open({.threads = 1}).value();
  const std::unique_ptr<KvCache> cache = KvCache::Create(Shape(), *device).value();
  // Window: (127 + 256) / 64 -> 6 blocks, one more for the alignment, 3 for the restore point;
  // times two sequences, three layers, 64 rows of 1024 bytes.
  REQUIRE(cache->bytes().window == 2 * 10 * 3 * 64 * 1024);
  // Compressed: 1024 / 256 + 2 blocks of 64 rows (ratio 4) and 2 rows (ratio 128).
  REQUIRE(cache->bytes().groups == 6 * (64 + 2) * 1024);
  REQUIRE(cache->bytes().index_keys == 6 * 64 * 256);
  // States: three slots a sequence; 3 triples of 512 and of 128 floats, and one triple of 512.
  REQUIRE(cache->bytes().states == 2 * 3 * 4 * (9 * 512 + 9 * 128 + 3 * 512));
  REQUIRE(cache->window_block_bytes() == 3 * 64 * 1024);
  REQUIRE(cache->group_block_bytes() == (64 + 2) * 1024 + 64 * 256);
}

TEST_CASE("rows of all layers, kinds and blocks, and states, lie apart") {
  const std::unique_ptr<Device> device = Device::Open({.threads = 1}).value();
  const std::unique_ptr<KvCache> cache = KvCache::Create(Shape(), *device).value();
  // Write a number of its own into each row and state, then find them all unharmed.
  const auto visit = [&](auto&& row_at) {
    uint8_t tag = 1;
    const auto rows = [&](const RowPool& pool, int32_t blocks, int64_t per_block) {
      for (int32_t b = 0; b < blocks; ++b) {
        for (int64_t slot = 0; slot < per_block; ++slot) {
          row_at(pool.Row(b, slot), pool.row_bytes, tag = static_cast<uint8_t>(tag * 13 + 7));
        }
      }
    };
    for (int64_t layer = 0; layer < 3; ++layer) {
      const LayerCache& at = cache->layer(layer);
      rows(at.window, cache->window_pool().size(), 64);
      if (layer == 1) rows(at.groups, cache->group_pool().size(), 64);
      if (layer == 1) rows(at.index_keys, cache->group_pool().size(), 64);
      if (layer == 2) rows(at.groups, cache->group_pool().size(), 2);
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
  const RowPool pool{.base = nullptr, .block_stride_bytes = 1'000'000, .row_bytes = 1024};
  REQUIRE(pool.Row(5000, 3) - static_cast<std::byte*>(nullptr) == 5'000'003'072);
}

}  // namespace
}  // namespace dsv4
