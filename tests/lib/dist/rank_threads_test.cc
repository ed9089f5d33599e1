// SPDX-License-Identifier: Apache-2.0
#include "lib/dist/rank_threads.h"

#include <atomic>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "lib/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

TEST_CASE("every rank is called once, on a thread of its own, the first on the caller's") {
  for (const int ranks : {1, 2, 5}) {
    const std::unique_ptr<RankThreads> threads = RankThreads::Start(ranks).value();
    REQUIRE(threads->ranks() == ranks);
    std::vector<std::thread::id> ids(static_cast<size_t>(ranks));
    std::vector<int64_t> calls(static_cast<size_t>(ranks));
    for (int64_t round = 0; round < 2000; ++round) {
      REQUIRE_OK(threads->Run([&](int rank) {
        const auto at = static_cast<size_t>(rank);
        if (round > 0 && ids[at] != std::this_thread::get_id()) return Internal("another thread");
        ids[at] = std::this_thread::get_id();
        ++calls[at];
        return absl::OkStatus();
      }));
      for (const int64_t count : calls) REQUIRE(count == round + 1);  // all have returned
    }
    REQUIRE(ids[0] == std::this_thread::get_id());
    for (int rank = 1; rank < ranks; ++rank) REQUIRE(ids[static_cast<size_t>(rank)] != ids[0]);
  }
}

TEST_CASE("ranks run at the same time") {
  const std::unique_ptr<RankThreads> threads = RankThreads::Start(3).value();
  std::atomic<int> there{0};
  REQUIRE_OK(threads->Run([&](int) {
    ++there;
    while (there < 3) std::this_thread::yield();  // for ever, if they came one after another
    return absl::OkStatus();
  }));
}

TEST_CASE("the failure of the lowest rank that failed is the call's, and of that call alone") {
  const std::unique_ptr<RankThreads> threads = RankThreads::Start(4).value();
  REQUIRE_FAILS(
      threads->Run([](int rank) { return rank >= 2 ? Internal("rank ", rank) : absl::OkStatus(); }),
      absl::StatusCode::kInternal, "rank 2");
  REQUIRE_OK(threads->Run([](int) { return absl::OkStatus(); }));
}

TEST_CASE("what a rank throws ends its call alone") {
  const std::unique_ptr<RankThreads> threads = RankThreads::Start(3).value();
  for (const int thrower : {0, 2}) {
    std::atomic<int> returned{0};
    REQUIRE_FAILS(threads->Run([&](int rank) -> absl::Status {
      if (rank == thrower) throw std::bad_alloc();
      std::this_thread::yield();
      ++returned;
      return absl::OkStatus();
    }),
                  absl::StatusCode::kResourceExhausted, "");
    REQUIRE(returned == 2);
  }
  REQUIRE_OK(threads->Run([](int) { return absl::OkStatus(); }));
}

}  // namespace
}  // namespace dsv4
