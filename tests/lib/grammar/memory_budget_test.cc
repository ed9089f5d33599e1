// SPDX-License-Identifier: Apache-2.0
// The memory of all grammars of a vocabulary is bounded: caches are freed for others and come back
// with the same masks; compiled grammars that do not fit are refused.
#include "lib/grammar/memory_budget.h"

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/error.h"
#include "lib/grammar/grammar.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"

namespace dsv4::grammar {
namespace {

constexpr int64_t kKiB = 1024;

struct Cache final : MemoryBudget::Cache {
  explicit Cache(const std::shared_ptr<MemoryBudget>& budget) : MemoryBudget::Cache(budget) {}
  ~Cache() { Remove(); }
  using MemoryBudget::Cache::Used;
  using MemoryBudget::Cache::UsedNow;
  bool TryFree() override {
    if (in_use) return false;
    ++freed;
    return true;
  }
  bool in_use = false;
  int freed = 0;
};

TEST_CASE("the cache that was not used for longest is freed for another one") {
  const auto budget = std::make_shared<MemoryBudget>(100);
  Cache a(budget), b(budget), c(budget);
  a.Used(40);
  b.Used(40);
  a.Used(50);
  CHECK(budget->used() == 90);
  c.Used(30);
  CHECK(budget->used() == 80);
  CHECK(a.freed == 0);
  CHECK(b.freed == 1);
  CHECK(c.freed == 0);
  // One that a thread uses is not freed, and one alone may have more than all.
  a.in_use = true;
  c.Used(60);
  CHECK(budget->used() == 110);
  a.in_use = false;
  c.Used(200);
  CHECK(a.freed == 1);
  CHECK(budget->used() == 200);
  b.UsedNow(10);
  CHECK(budget->used() == 210);
  {
    Cache d(budget);
    d.Used(1);
    CHECK(b.freed + c.freed == 2);  // b is left: it was used after c
    CHECK(budget->used() == 11);
  }
  CHECK(budget->used() == 10);
}

TEST_CASE("shares free caches, and are refused where other shares leave no room") {
  const auto budget = std::make_shared<MemoryBudget>(3072 * kKiB);
  Cache cache(budget);
  cache.Used(2048 * kKiB);
  {
    const auto first = MemoryBudget::Reserve(budget, 2000 * kKiB);
    REQUIRE_OK(first);
    CHECK(cache.freed == 1);
    CHECK(budget->used() == 2000 * kKiB);
    const auto second = MemoryBudget::Reserve(budget, 1073 * kKiB);
    REQUIRE_FAILS(second, absl::StatusCode::kResourceExhausted,
                  "the grammar has 1073 KiB, and those that are open have 2000 KiB; all grammars "
                  "of an engine have at most 3 MiB");
    REQUIRE_OK(MemoryBudget::Reserve(budget, 1072 * kKiB));
  }
  CHECK(budget->used() == 0);
}

std::shared_ptr<const Vocabulary> Bytes(int64_t grammars_bytes) {
  std::vector<std::string> bytes = {""};
  for (int byte = 0; byte < 256; ++byte) bytes.push_back(std::string(1, static_cast<char>(byte)));
  return std::make_shared<Vocabulary>(std::move(bytes), grammars_bytes);
}

// The masks along a text of `length` characters, each state of which has one of its own.
struct Walk {
  Walk(const std::shared_ptr<const Vocabulary>& vocabulary, int which)
      : text(100, static_cast<char>('a' + which)) {
    auto compiled =
        Grammar::OfRegex(absl::StrCat("(", std::string(1, text[0]), "|bb){0,100}"), vocabulary);
    REQUIRE_OK(compiled);
    matcher.Reset(*std::move(compiled), Matcher::Start::kContent);
  }
  MaskBits Next() {
    const auto mask = matcher.Mask();
    REQUIRE_OK(mask);
    matcher.Push(text.substr(at++, 1));
    return **mask;
  }
  std::string text;
  size_t at = 0;
  Matcher matcher;
};

TEST_CASE("grammars whose caches are freed for others have the same masks") {
  const auto large = Bytes(kMaxGrammarsBytes);
  std::vector<std::vector<MaskBits>> expected;
  int64_t needed = 0;
  for (int i = 0; i < 4; ++i) {
    Walk walk(large, i);
    expected.emplace_back();
    for (size_t k = 0; k < walk.text.size(); ++k) expected.back().push_back(walk.Next());
    needed = large->budget->used();
  }
  CHECK(large->budget->used() == 0);
  // Room for three of four.
  const int64_t most = 3 * needed;
  const auto small = Bytes(most);
  std::vector<Walk> walks;
  for (int i = 0; i < 4; ++i) walks.emplace_back(small, i);
  int64_t largest = 0;
  for (size_t k = 0; k < 100; ++k) {
    for (size_t i = 0; i < walks.size(); ++i) {
      CAPTURE(i, k);
      REQUIRE((walks[i].Next() == expected[i][k]));
      largest = std::max(largest, small->budget->used());
      REQUIRE(small->budget->used() <= most);
    }
  }
  CHECK(largest > 2 * needed);
}

TEST_CASE("threads whose grammars free each other's caches have the same masks") {
  const auto vocabulary = Bytes(kKiB);  // less than any of them has
  std::vector<MaskBits> expected;
  {
    Walk walk(Bytes(kMaxGrammarsBytes), 0);
    for (size_t k = 0; k < walk.text.size(); ++k) expected.push_back(walk.Next());
  }
  const auto refused = Grammar::OfRegex("(a|bb){0,100}", vocabulary);
  REQUIRE_FAILS(refused, absl::StatusCode::kResourceExhausted, "at most 0 MiB");
  const auto shared = Bytes(48 * kKiB);
  std::vector<std::thread> threads;
  std::vector<int> right(4);
  for (size_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      Matcher matcher;
      auto compiled = Grammar::OfRegex("(a|bb){0,100}", shared);
      if (!compiled.ok()) return;
      matcher.Reset(*std::move(compiled), Matcher::Start::kContent);
      for (size_t k = 0; k < 100; ++k) {
        const auto mask = matcher.Mask();
        right[i] += mask.ok() && **mask == expected[k];
        matcher.Push("a");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int count : right) CHECK(count == 100);
}

}  // namespace
}  // namespace dsv4::grammar
