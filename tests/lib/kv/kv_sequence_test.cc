// SPDX-License-Identifier: Apache-2.0
#include "lib/kv/kv_sequence.h"

#include <cstring>

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
  void Extend(KvSequence& sequence, int64_t tokens) {
    REQUIRE_OK(sequence.Reserve(tokens));
    sequence.Commit(tokens);
  }
  int32_t free_windows() { return cache->window_pool().free_blocks(); }
  int32_t free_groups() { return cache->group_pool().free_blocks(); }
};

TEST_CASE("a step sees a block for each of its positions and its window") {
  Fixture f;
  KvSequence sequence = f.Open();
  f.Extend(sequence, 250);
  REQUIRE_OK(sequence.Reserve(20));
  const SequenceRows rows = sequence.Rows(7, 20);
  REQUIRE(rows.first_row == 7);
  REQUIRE(rows.rows == 20);
  REQUIRE(rows.first_position == 250);
  for (int64_t position = 250 - 127; position < 270; ++position) {
    REQUIRE(rows.window_blocks[position / 64] != kNoBlock);
  }
  REQUIRE(rows.group_blocks[0] != kNoBlock);
  REQUIRE(rows.group_blocks[1] != kNoBlock);
  REQUIRE(rows.group_blocks[0] != rows.group_blocks[1]);
  REQUIRE(rows.save_count == 1);
  REQUIRE(rows.saves[0].row == 20);
  REQUIRE(rows.saves[0].state != rows.state_in);
}

TEST_CASE("window blocks that left every window are freed, compressed ones stay") {
  Fixture f;
  const int32_t windows = f.free_windows(), groups = f.free_groups();
  {
    KvSequence sequence = f.Open();
    for (int step = 0; step < 10; ++step) f.Extend(sequence, 100);
    // The token at 1000 sees positions from 873 on: blocks 13 to 15 of 64 tokens.
    REQUIRE(windows - f.free_windows() == 3);
    REQUIRE(groups - f.free_groups() == 4);
    REQUIRE(sequence.held_bytes() == 3 * f.cache->window_block_bytes() +
                                         4 * f.cache->group_block_bytes() +
                                         3 * f.cache->state_bytes());
  }
  REQUIRE(f.free_windows() == windows);
  REQUIRE(f.free_groups() == groups);
  REQUIRE(f.cache->state_pool().free_blocks() == 6);
}

TEST_CASE("a full pool fails the one who asks and gives back what it took") {
  Fixture f;
  KvSequence first = f.Open(), second = f.Open();
  REQUIRE_FAILS(KvSequence::Open(f.cache.get()), absl::StatusCode::kAborted, "compressor-state");
  for (int step = 0; step < 4; ++step) f.Extend(first, 256);
  f.Extend(second, 256);
  const int32_t windows = f.free_windows(), groups = f.free_groups();
  REQUIRE(groups == 1);
  REQUIRE_OK(second.Reserve(256));  // takes the last block; not committed
  REQUIRE_FAILS(first.Reserve(256), absl::StatusCode::kAborted, "compressed-row");
  REQUIRE(first.length() == 1024);
  REQUIRE(f.free_windows() == windows - 4);
  f.Extend(second, 256);
  REQUIRE(f.free_groups() == 0);
}

TEST_CASE("a step that is not committed leaves length and state as they were") {
  Fixture f;
  KvSequence sequence = f.Open();
  f.Extend(sequence, 5);
  const std::byte* state = sequence.Rows(0, 1).state_in;
  REQUIRE_OK(sequence.Reserve(9));
  std::memset(sequence.Rows(0, 9).saves[0].state, 1, 16);
  REQUIRE(sequence.length() == 5);
  REQUIRE(sequence.Rows(0, 1).state_in == state);
  f.Extend(sequence, 9);
  REQUIRE(sequence.Rows(0, 1).state_in != state);
}

TEST_CASE("rewind goes to the restore point, with its state and window, or to the start") {
  Fixture f;
  const int32_t windows = f.free_windows();
  KvSequence sequence = f.Open();
  f.Extend(sequence, 200);
  std::memset(const_cast<std::byte*>(sequence.Rows(0, 1).state_in), 42,
              static_cast<size_t>(f.cache->state_bytes()));
  sequence.SaveRestorePoint();
  const SequenceRows at_point = sequence.Rows(0, 1);
  const int32_t block_1 = at_point.window_blocks[1], block_3 = at_point.window_blocks[3];
  for (int step = 0; step < 5; ++step) {
    REQUIRE_OK(sequence.Reserve(100));
    std::memset(sequence.Rows(0, 100).saves[0].state, step,
                static_cast<size_t>(f.cache->state_bytes()));
    sequence.Commit(100);
  }
  REQUIRE(sequence.RestorablePosition(700) == 700);
  REQUIRE(sequence.RestorablePosition(699) == 200);
  REQUIRE(sequence.RestorablePosition(200) == 200);
  REQUIRE(sequence.RestorablePosition(199) == 0);

  REQUIRE(sequence.Rewind(650) == 200);
  REQUIRE(sequence.length() == 200);
  const SequenceRows rows = sequence.Rows(0, 1);
  REQUIRE(rows.window_blocks[1] == block_1);
  REQUIRE(rows.window_blocks[3] == block_3);
  for (int64_t i = 0; i < f.cache->state_bytes(); ++i) REQUIRE(rows.state_in[i] == std::byte{42});
  // Again from there: the point outlives its use.
  f.Extend(sequence, 150);
  REQUIRE(sequence.Rewind(300) == 200);
  REQUIRE(sequence.Rewind(199) == 0);
  REQUIRE(f.free_windows() == windows);
  REQUIRE(sequence.RestorablePosition(5) == 0);
}

}  // namespace
}  // namespace dsv4
