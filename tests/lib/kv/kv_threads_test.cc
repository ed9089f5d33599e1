// SPDX-License-Identifier: Apache-2.0
// Sequences of several threads in one cache: they meet in its pools and its prefix cache alone.
#include <random>
#include <thread>

#include "lib/base/error.h"
#include "tests/lib/kv/fake_forward.h"
#include "tests/support/catch.h"

namespace dsv4 {
namespace {

using test::FakeForward;
using test::FakeSession;

// Follows texts that other threads follow, too; returns what went wrong.
int64_t Drive(KvCache* cache, uint32_t seed, const std::vector<std::vector<int32_t>>& texts) {
  std::mt19937 random(seed);
  FakeForward forward(cache);
  int64_t wrong = 0;
  for (int round = 0; round < 12; ++round) {
    absl::StatusOr<KvSequence> opened = KvSequence::Open(cache);
    if (!opened.ok()) return 1;
    FakeSession session(*std::move(opened), &forward);
    const std::vector<int32_t>& text = texts[random() % texts.size()];
    session.Adopt(text, static_cast<int64_t>(random() % text.size()));
    for (int step = 0; step < 8; ++step) {
      const auto begin = text.begin() + session.text.size();
      const auto rows = std::min<int64_t>(1 + random() % 200, text.end() - begin);
      if (rows == 0) break;
      const absl::Status status = session.Extend({begin, begin + rows}, 300);
      wrong += !status.ok() && !IsOutOfBlocks(status);
      if (random() % 3 == 0) session.kv.MarkTurnEnd();
      if (random() % 4 == 0) session.Rewind(session.text.size() - 50);
      if (random() % 6 == 0) {
        absl::StatusOr<KvSequence> fork = session.kv.Fork();
        if (!fork.ok()) return 1;
        FakeSession other(*std::move(fork), &forward);
        other.text = session.text;
        wrong += !other.Extend({1, 2, 3}).ok() ? 0 : other.Mismatches();
      }
      wrong += session.Mismatches();
    }
  }
  return wrong + forward.bad_writes;
}

TEST_CASE("sequences of several threads share a cache") {
  constexpr int kThreads = 4;
  const std::unique_ptr<Device> device = Device::Open({.threads = 1}).value();
  const std::unique_ptr<KvCache> cache = KvCache::Create({.compress_ratios = {4, 128, 0},
                                                          .mtp_layers = 1,
                                                          .streams_bytes = 64,
                                                          .context_tokens = 1024,
                                                          .cache_tokens = 2048,
                                                          .max_sequences = 2 * kThreads,
                                                          .max_step_tokens = 256},
                                                         *device)
                                             .value();
  std::vector<std::vector<int32_t>> texts;
  for (size_t i = 0; i < 3; ++i) {
    texts.emplace_back(1000, 1);
    for (size_t p = i * 300; p < 1000; ++p) texts[i][p] = static_cast<int32_t>(i);
  }
  int64_t wrong[kThreads] = {};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back(
        [&, i] { wrong[i] = Drive(cache.get(), static_cast<uint32_t>(i + 1), texts); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int64_t count : wrong) REQUIRE(count == 0);
  REQUIRE(cache->use().compressed.held() == 0);
  REQUIRE(cache->use().windows.held() == 0);
}

}  // namespace
}  // namespace dsv4
