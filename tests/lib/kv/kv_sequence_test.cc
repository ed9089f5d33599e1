// SPDX-License-Identifier: Apache-2.0
#include "lib/kv/kv_sequence.h"

#include <cstring>

#include "lib/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

struct Fixture {
  std::unique_ptr<Device> device = Device::Open({.threads = 1}).value();
  std::unique_ptr<KvCache> cache = KvCache::Create({.compress_ratios = {4},
                                                    .row_format = RowFormat::kBf16,
                                                    .context_tokens = 4096,
                                                    .cache_tokens = 1024,
                                                    .max_sequences = 2,
                                                    .max_step_tokens = 256},
                                                   *device)
                                       .value();
  KvSequence Open() { return KvSequence::Open(cache.get()).value(); }
  // Tokens are all equal: the tests with a model of the cache vary them.
  void Extend(KvSequence& sequence, int64_t tokens) {
    REQUIRE_OK(sequence.Reserve(tokens));
    sequence.Commit(tokens);
    sequence.Publish({}, 0);
  }
};

TEST_CASE("a step sees a block for each of its positions and its window") {
  Fixture f;
  KvSequence sequence = f.Open();
  f.Extend(sequence, 250);
  REQUIRE_OK(sequence.Reserve(20));
  const SequenceRows rows = sequence.Rows(7);
  REQUIRE(rows.first_row == 7);
  REQUIRE(rows.rows == 20);
  REQUIRE(rows.first_position == 250);
  for (int64_t position = 250 - 127; position < 270; ++position) {
    REQUIRE(rows.window_blocks[position / 64] != kNoBlock);
  }
  REQUIRE(rows.compressed_kv_blocks[0] != kNoBlock);
  REQUIRE(rows.compressed_kv_blocks[1] != kNoBlock);
  REQUIRE(rows.compressed_kv_blocks[0] != rows.compressed_kv_blocks[1]);
  // Saved where the compressed KV block ends, and at the end.
  REQUIRE(rows.state_write_count == 2);
  REQUIRE(rows.state_writes[0].row == 6);
  REQUIRE(rows.state_writes[1].row == 20);
  REQUIRE(rows.state_writes[0].slot != rows.state_writes[1].slot);
  REQUIRE(rows.state_slot != rows.state_writes[0].slot);
  REQUIRE(rows.state_slot != rows.state_writes[1].slot);
}

TEST_CASE("window blocks that left every window are freed, compressed ones stay") {
  Fixture f;
  const KvUse before = f.cache->use();
  {
    KvSequence sequence = f.Open();
    for (int step = 0; step < 10; ++step) f.Extend(sequence, 100);
    // The token at 1000 sees positions from 873 on: blocks 13 to 15 of 64 tokens. Restore points at
    // 256, 512 and 768 hold two blocks and a state each.
    REQUIRE(f.cache->use().windows.held() == 3 + 6);
    REQUIRE(f.cache->use().compressed.held() == 4);
    REQUIRE(f.cache->use().states.held() - before.states.held() == 1 + 3);
    REQUIRE(sequence.held_bytes() == 3 * f.cache->plan().window_block_bytes +
                                         4 * f.cache->plan().compressed_kv_block_bytes +
                                         f.cache->state_bytes());
  }
  REQUIRE(f.cache->use().windows.free == before.windows.free);
  REQUIRE(f.cache->use().compressed.free == before.compressed.free);
  REQUIRE(f.cache->use().states.free == before.states.free);
}

TEST_CASE("a full pool fails the one who asks and changes nothing") {
  Fixture f;
  KvSequence first = f.Open(), second = f.Open();
  REQUIRE_FAILS(KvSequence::Open(f.cache.get()), OutOfBlocks().code(), "all 2 sequences");
  for (int step = 0; step < 4; ++step) f.Extend(first, 256);
  f.Extend(second, 256);
  REQUIRE(f.cache->use().compressed.free == 1);
  REQUIRE_OK(second.Reserve(256));  // takes the last block; not committed
  const KvUse before = f.cache->use();
  REQUIRE_FAILS(first.Reserve(256), OutOfBlocks().code(), "compressed-row");
  REQUIRE(first.length() == 1024);
  REQUIRE(f.cache->use().windows.free == before.windows.free);
  REQUIRE(f.cache->use().states.free == before.states.free);
  second.Commit(0);  // gives the step up
  REQUIRE(f.cache->use().compressed.free == 1);
  REQUIRE_OK(first.Reserve(256));
}

TEST_CASE("steps past the limits are refused by name") {
  Fixture f;
  KvSequence sequence = f.Open();
  REQUIRE_FAILS(sequence.Reserve(0), absl::StatusCode::kInvalidArgument, "0 rows");
  REQUIRE_FAILS(sequence.Reserve(257), absl::StatusCode::kInvalidArgument, "1..256");
  REQUIRE_FAILS(sequence.Reserve(2, 0, true), absl::StatusCode::kInvalidArgument, "1..1");
  REQUIRE_FAILS(sequence.Reserve(1, 2), absl::StatusCode::kInvalidArgument, "2 draft slots");
}

TEST_CASE("a step that is not committed leaves length and state as they were") {
  Fixture f;
  KvSequence sequence = f.Open();
  f.Extend(sequence, 5);
  const int32_t state = sequence.state_slot();
  REQUIRE_OK(sequence.Reserve(9));
  REQUIRE(sequence.length() == 5);
  REQUIRE(sequence.state_slot() == state);
  f.Extend(sequence, 9);
  REQUIRE(sequence.length() == 14);
  REQUIRE(sequence.state_slot() != state);
}

}  // namespace
}  // namespace dsv4
