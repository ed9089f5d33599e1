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

TEST_CASE("probabilities are shares of the mass") {
  const Distribution d = Of({{3, 2}, {5, 4}, {9, 2}});
  REQUIRE(Probability(d, 3) == 0.25);
  REQUIRE(Probability(d, 5) == 0.5);
  REQUIRE(Probability(d, 9) == 0.25);
  for (const int32_t other : {0, 4, 6, 10}) REQUIRE(Probability(d, other) == 0);
}

TEST_CASE("a point has all the mass") {
  Distribution d = Of({{3, 2}, {5, 4}});
  d.SetPoint(7);
  REQUIRE(d.mass() == 1);
  REQUIRE(d.candidates().size() == 1);
  REQUIRE(Probability(d, 7) == 1);
  REQUIRE(Draw(d, 0) == 7);
  REQUIRE(Draw(d, kAlmostOne) == 7);
}

TEST_CASE("the residual is the positive part of p - q") {
  // p = 1/2, 1/4, 1/4 on 2, 4, 6; q = 1/4, 1/8, 5/8 on 2, 4, 5: 1/4, 1/8, 1/4 are left, of 5/8.
  const Distribution p = Of({{2, 2}, {4, 1}, {6, 1}}), q = Of({{2, 8}, {4, 4}, {5, 20}});
  REQUIRE(DrawResidual(p, q, 0) == 2);
  REQUIRE(DrawResidual(p, q, 0.399) == 2);
  REQUIRE(DrawResidual(p, q, 0.401) == 4);
  REQUIRE(DrawResidual(p, q, 0.599) == 4);
  REQUIRE(DrawResidual(p, q, 0.601) == 6);
  REQUIRE(DrawResidual(p, q, kAlmostOne) == 6);
  // The other way only 5 is left.
  REQUIRE(DrawResidual(q, p, 0) == 5);
  REQUIRE(DrawResidual(q, p, kAlmostOne) == 5);
}

TEST_CASE("the residual of disjoint distributions is p, and so is that of equal ones") {
  const Distribution p = Of({{2, 3}, {4, 1}});
  for (const Distribution& q : {Of({{1, 1}, {3, 1}, {5, 1}}), p}) {
    REQUIRE(DrawResidual(p, q, 0) == 2);
    REQUIRE(DrawResidual(p, q, 0.749) == 2);
    REQUIRE(DrawResidual(p, q, 0.751) == 4);
    REQUIRE(DrawResidual(p, q, kAlmostOne) == 4);
  }
}

}  // namespace
}  // namespace dsv4
