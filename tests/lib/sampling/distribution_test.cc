// SPDX-License-Identifier: Apache-2.0
// Quarters and eighths: every share below is exact, and worked out by hand.
#include "lib/sampling/distribution.h"

#include <vector>

#include "tests/support/catch.h"

namespace dsv4 {
namespace {

Distribution Of(const std::vector<Candidate>& candidates) {
  Distribution distribution(16);
  distribution.Assign([&](std::vector<Candidate>* out) { *out = candidates; });
  return distribution;
}

constexpr double kAlmostOne = 1 - 0x1p-53;

TEST_CASE("a draw is the token at that share of the mass") {
  const Distribution d = Of({{3, 2}, {5, 4}, {9, 2}});
  REQUIRE(d.mass() == 8);
  REQUIRE(Draw(d, 0) == 3);
  REQUIRE(Draw(d, 0.2499) == 3);
  REQUIRE(Draw(d, 0.25) == 5);
  REQUIRE(Draw(d, 0.7499) == 5);
  REQUIRE(Draw(d, 0.75) == 9);
  REQUIRE(Draw(d, kAlmostOne) == 9);
}

TEST_CASE("a point has all the mass") {
  Distribution d = Of({{3, 2}, {5, 4}});
  d.SetPoint(7);
  REQUIRE(d.mass() == 1);
  REQUIRE(d.candidates().size() == 1);
  REQUIRE(Draw(d, 0) == 7);
  REQUIRE(Draw(d, kAlmostOne) == 7);
}

}  // namespace
}  // namespace dsv4
