// SPDX-License-Identifier: Apache-2.0
// Which launches of a test are marked for tools that look at some of each kernel and shape.
#include "tests/support/launch_marks.h"

#include <vector>

#include "tests/support/catch.h"

namespace dsv4::test {
namespace {

// Addresses of two that could be kernels.
const char kernels[2] = {};
const void* const kFirst = &kernels[0];
const void* const kSecond = &kernels[1];

TEST_CASE("launches 1, 2, 4, 8, .. of each kernel and shape are marked") {
  LaunchMarks marks({.number = 0, .of = 1});
  const LaunchShape shape{.blocks = {4, 1, 1}, .threads = {256, 1, 1}, .shared_bytes = 512};
  std::vector<int> marked;
  for (int number = 1; number <= 20; ++number) {
    if (marks.Next(kFirst, shape)) marked.push_back(number);
  }
  CHECK(marked == std::vector<int>{1, 2, 4, 8, 16});
  CHECK(marks.Next(kSecond, shape));  // another kernel
  LaunchShape other = shape;
  other.blocks[2] = 2;
  CHECK(marks.Next(kFirst, other));
  other = shape;
  other.threads[0] = 128;
  CHECK(marks.Next(kFirst, other));
  other = shape;
  other.shared_bytes = 0;
  CHECK(marks.Next(kFirst, other));
  CHECK_FALSE(marks.Next(kFirst, shape));  // the 21st
  CHECK(marks.launches() == 25);
  CHECK(marks.marked() == 9);
  CHECK(marks.kinds() == 5);
}

TEST_CASE("each kind is in one share") {
  constexpr int kShares = 3;
  std::vector<LaunchMarks> shares;
  for (int k = 0; k < kShares; ++k) shares.emplace_back(Share{.number = k, .of = kShares});
  for (unsigned blocks = 1; blocks <= 300; ++blocks) {
    for (const unsigned threads : {128u, 256u}) {
      for (const size_t shared_bytes : {size_t{0}, size_t{4096}}) {
        const LaunchShape shape{{blocks, 1, 1}, {threads, 1, 1}, shared_bytes};
        int marked = 0;
        for (LaunchMarks& share : shares) marked += share.Next(kFirst, shape);
        CHECK(marked == 1);
      }
    }
  }
  for (const LaunchMarks& share : shares) CHECK(share.kinds() > 1200 / kShares / 2);
}

TEST_CASE("a share is K/N with K from 0 to N - 1") {
  const auto share = ParseShare("2/3");
  REQUIRE(share);
  CHECK(share->number == 2);
  CHECK(share->of == 3);
  for (const char* text : {"", "1", "3/3", "-1/3", "0/0", "1/-2", "1/2x", "1/2/3", "a/b"}) {
    CAPTURE(text);
    CHECK_FALSE(ParseShare(text));
  }
}

}  // namespace
}  // namespace dsv4::test
