// SPDX-License-Identifier: Apache-2.0
// Counts what a sequence allocates after it is open: nothing.
#include "tests/lib/kv/fake_forward.h"
#include "tests/support/allocation_counter.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

TEST_CASE("steps, restore points, rewinds and prefix hits allocate nothing") {
  const std::unique_ptr<Device> device = Device::Open({.threads = 1}).value();
  const std::unique_ptr<KvCache> cache = KvCache::Create({.compress_ratios = {4, 128},
                                                          .context_tokens = 16384,
                                                          .cache_tokens = 16384,
                                                          .max_sequences = 2,
                                                          .max_step_tokens = 256,
                                                          .max_draft_tokens = 3},
                                                         *device)
                                             .value();
  KvSequence first = KvSequence::Open(cache.get()).value();
  KvSequence second = KvSequence::Open(cache.get()).value();
  const std::vector<int32_t> tokens(16384, 1);
  bool ok = true;
  int64_t adopted = 0;
  const int64_t count = test::CountAllocations([&] {
    const auto step = [&](KvSequence& sequence, int64_t rows, bool verify) {
      ok &= sequence.Reserve(rows, verify ? 3 : 0, verify).ok();
      ok &= sequence.Rows(0).state_write_count > 0;
      sequence.Commit(rows);
      sequence.Publish(tokens, 6000);
    };
    for (int i = 0; i < 45; ++i) {
      step(first, 250, false);
      step(first, 4, true);
      first.MarkTurnEnd();
    }
    first.Rewind(10000);
    for (int i = 0; i < 20; ++i) step(first, 128, false);
    adopted = second.AdoptPrefix(tokens, 0, 16000).cached_tokens;
    while (second.length() < 16000) step(second, 256, false);  // evicts
  });
  REQUIRE(ok);
  REQUIRE(adopted > 8000);
  REQUIRE(count == 0);
}

}  // namespace
}  // namespace dsv4
