// SPDX-License-Identifier: Apache-2.0
// The cpu backend's selection of the highest scores, on every instruction set.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/top_k.h"
#include "tests/kernels/tested_backend.h"
#include "tests/support/catch.h"

namespace dsv4::test {
namespace {

// Room for entries that end where no page follows: whoever reads or writes more faults.
class GuardedEntries {
 public:
  GuardedEntries() {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    bytes_ = 2 * page;
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory_ != MAP_FAILED);
    end_ = reinterpret_cast<int32_t*>(static_cast<std::byte*>(memory_) + page);
    REQUIRE(mprotect(end_, page, PROT_NONE) == 0);
  }
  ~GuardedEntries() { munmap(memory_, bytes_); }
  GuardedEntries(const GuardedEntries&) = delete;
  int32_t* Last(int64_t count) const { return end_ - count; }

 private:
  size_t bytes_ = 0;
  void* memory_ = nullptr;
  int32_t* end_ = nullptr;
};

TEST_CASE("cpu top-k is exact, with ties to the lowest index, and touches nothing behind it") {
  const GuardedEntries entries;
  std::mt19937_64 random(5);
  for (int round = 0; round < 300; ++round) {
    const int64_t n = 2 + static_cast<int64_t>(random() % 700);
    const auto k = static_cast<int32_t>(1 + random() % static_cast<uint64_t>(n - 1));
    const uint64_t distinct = 1 + random() % 40;  // many ties
    std::vector<float> scores(static_cast<size_t>(n), 0.0f);
    for (float& s : scores) {
      s = static_cast<float>(random() % distinct) - 7.0f;
      if (round % 3 == 0) s = std::ldexp(s + 0.37f, static_cast<int>(random() % 200) - 100);
      if (round % 7 == 0 && random() % 9 == 0) s = -std::numeric_limits<float>::infinity();
      s += 0.0f;
    }
    std::vector<int32_t> order(scores.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
    });
    order.resize(static_cast<size_t>(k));
    std::sort(order.begin(), order.end());
    ForEachVariant([&] {
      std::vector<float> used = scores;
      used.resize(static_cast<size_t>(n + 31) / 32 * 32, 1e30f);
      int32_t* const got = entries.Last(k);
      got[-1] = -7;
      SelectTopK(used.data(), n, k, got);
      REQUIRE(std::equal(order.begin(), order.end(), got));
      REQUIRE(got[-1] == -7);
    });
  }
}

}  // namespace
}  // namespace dsv4::test
