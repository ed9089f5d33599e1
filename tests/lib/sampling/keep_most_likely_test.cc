// SPDX-License-Identifier: Apache-2.0
// Small lists by hand, large ones against sorting.
#include "lib/sampling/keep_most_likely.h"

#include <algorithm>
#include <limits>
#include <random>

#include "tests/support/catch.h"

namespace dsv4 {
namespace {

using Tokens = std::vector<int32_t>;

std::vector<Candidate> CandidatesOf(const std::vector<float>& weights) {
  std::vector<Candidate> candidates;
  for (const float weight : weights)
    candidates.push_back({static_cast<int32_t>(candidates.size()), weight});
  return candidates;
}

Tokens TokensOf(const std::vector<Candidate>& candidates) {
  Tokens tokens;
  for (const Candidate& candidate : candidates) tokens.push_back(candidate.token);
  return tokens;
}

Tokens Largest(int64_t count, const std::vector<float>& weights) {
  std::vector<Candidate> candidates = CandidatesOf(weights);
  std::vector<double> bins(kSelectionBins, 7.0);
  KeepLargest(count, &candidates, absl::MakeSpan(bins));
  for (const Candidate& candidate : candidates)
    REQUIRE(candidate.weight == weights[static_cast<size_t>(candidate.token)]);
  return TokensOf(candidates);
}

Tokens OfMass(double mass, const std::vector<float>& weights) {
  std::vector<Candidate> candidates = CandidatesOf(weights);
  std::vector<double> bins(kSelectionBins, 7.0);
  KeepMass(mass, &candidates, absl::MakeSpan(bins));
  return TokensOf(candidates);
}

TEST_CASE("the largest weights are kept in token order, equals by the lowest token") {
  const std::vector<float> weights = {1, 3, -2, 1, 3, 0.5f};
  REQUIRE(Largest(1, weights) == Tokens{1});
  REQUIRE(Largest(2, weights) == Tokens{1, 4});
  REQUIRE(Largest(3, weights) == Tokens{0, 1, 4});
  REQUIRE(Largest(4, weights) == Tokens{0, 1, 3, 4});
  REQUIRE(Largest(5, weights) == Tokens{0, 1, 3, 4, 5});
  REQUIRE(Largest(6, weights).size() == 6);
  REQUIRE(Largest(std::numeric_limits<int64_t>::max(), weights).size() == 6);
}

TEST_CASE("weights are ordered by value down to their last bit and whatever their sign") {
  const float above = std::nextafter(1.0f, 2.0f), below = std::nextafter(1.0f, 0.0f);
  REQUIRE(Largest(1, {1, below, above}) == Tokens{2});
  REQUIRE(Largest(2, {below, 1, above}) == Tokens{1, 2});
  REQUIRE(Largest(1, {-1, -above, -below}) == Tokens{2});
  REQUIRE(Largest(2, {-1, -above, -below}) == Tokens{0, 2});
  // The two zeros are equal.
  REQUIRE(Largest(1, {-0.0f, 0.0f}) == Tokens{0});
  REQUIRE(Largest(1, {0.0f, -0.0f}) == Tokens{0});
  constexpr float kMax = std::numeric_limits<float>::max();
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  REQUIRE(Largest(3, {-kMax, kTiny, kMax, 0, -kTiny}) == Tokens{1, 2, 3});
}

TEST_CASE("the shortest list of largest weights that reaches a mass is kept") {
  const std::vector<float> weights = {1, 8, 2, 4};
  REQUIRE(OfMass(1e-9, weights) == Tokens{1});
  REQUIRE(OfMass(8, weights) == Tokens{1});
  REQUIRE(OfMass(8.001, weights) == Tokens{1, 3});
  REQUIRE(OfMass(12, weights) == Tokens{1, 3});
  REQUIRE(OfMass(13, weights) == Tokens{1, 2, 3});
  REQUIRE(OfMass(15, weights) == Tokens{0, 1, 2, 3});
  REQUIRE(OfMass(99, weights) == Tokens{0, 1, 2, 3});
  REQUIRE(OfMass(3, {1, 1, 1, 1, 1}) == Tokens{0, 1, 2});
  REQUIRE(OfMass(5, {1, 2, 2, 2, 1}) == Tokens{1, 2, 3});
}

TEST_CASE("selections of many are those of a sorted list") {
  std::mt19937 random(17);
  for (int round = 0; round < 200; ++round) {
    CAPTURE(round);
    // Whole numbers: sums are exact in any order, and equals are frequent. Others spread over the
    // exponents.
    const size_t size = 1 + random() % 600;
    const uint32_t range = 1 + random() % 3000;
    std::vector<float> weights(size);
    for (float& weight : weights) weight = static_cast<float>(1 + random() % range);
    std::vector<Candidate> sorted = CandidatesOf(weights);
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const Candidate& a, const Candidate& b) { return a.weight > b.weight; });
    const size_t count = 1 + random() % size;
    double mass = 0;
    for (size_t i = 0; i < count; ++i) mass += sorted[i].weight;
    std::sort(sorted.begin(), sorted.begin() + count,
              [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
    sorted.resize(count);
    const Tokens expected = TokensOf(sorted);
    REQUIRE(Largest(static_cast<int64_t>(count), weights) == expected);
    REQUIRE(OfMass(mass - 0.5, weights) == expected);
    REQUIRE(OfMass(mass, weights) == expected);
  }
}

}  // namespace
}  // namespace dsv4
