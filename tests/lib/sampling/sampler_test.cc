// SPDX-License-Identifier: Apache-2.0
// Expected sets are worked out by hand from small probability vectors; frequencies are held against
// those probabilities by a chi-squared test with fixed seeds.
#include "lib/sampling/sampler.h"

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "lib/sampling/rng.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A sampler, and what it needs, for one row of logits at a time.
struct Chooser {
  explicit Chooser(size_t vocab, const SamplingParams& params = {})
      : sampler(static_cast<int64_t>(vocab), static_cast<int32_t>(vocab), {}),
        history(static_cast<int64_t>(vocab)),
        distribution(static_cast<int64_t>(vocab)) {
    REQUIRE_OK(sampler.SetParams(params));
  }
  int32_t Choose(const std::vector<float>& logits, uint64_t position) {
    REQUIRE_OK(sampler.Shape(logits, history, rules, &distribution));
    return Draw(distribution, Uniform(sampler.params().seed, position));
  }

  Sampler sampler;
  TokenHistory history;
  TokenRules rules;
  Distribution distribution;
};

int32_t Sample(const std::vector<float>& logits, const SamplingParams& params,
               uint64_t position = 0) {
  return Chooser(logits.size(), params).Choose(logits, position);
}

std::vector<float> LogitsOf(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

std::map<int32_t, int> Counts(const std::vector<float>& logits, const SamplingParams& params,
                              int draws) {
  Chooser chooser(logits.size(), params);
  std::map<int32_t, int> counts;
  for (int position = 0; position < draws; ++position)
    ++counts[chooser.Choose(logits, static_cast<uint64_t>(position))];
  return counts;
}

// The tokens that 2000 draws choose: with every kept probability above 0.01, a kept token is missed
// with a chance below 2e-9.
std::set<int32_t> Support(const std::vector<double>& probabilities, const SamplingParams& params) {
  std::set<int32_t> support;
  for (const auto& [token, count] : Counts(LogitsOf(probabilities), params, 2000))
    support.insert(token);
  return support;
}

double ChiSquared(const std::map<int32_t, int>& counts, const std::vector<double>& probabilities,
                  int draws) {
  double sum = 0;
  for (size_t token = 0; token < probabilities.size(); ++token) {
    const auto found = counts.find(static_cast<int32_t>(token));
    const double count = found == counts.end() ? 0 : found->second;
    const double expected = probabilities[token] * draws;
    sum += (count - expected) * (count - expected) / expected;
  }
  return sum;
}

TEST_CASE("greedy takes the largest logit and the lowest id among equals") {
  REQUIRE(Sample({0.5f, 2.0f, -1.0f, 2.0f, 2.0f}, {}) == 1);
  REQUIRE(Sample({-3.0f, -2.0f, -2.0f}, {}) == 1);
  REQUIRE(Sample({0.0f, -0.0f}, {}) == 0);
  REQUIRE(Sample({-0.0f, 0.0f}, {}) == 0);
  REQUIRE(Sample({7.0f}, {}) == 0);
}

TEST_CASE("greedy ignores the other parameters") {
  SamplingParams params;
  params.top_k = 2;
  params.top_p = 0.5f;
  params.min_p = 0.5f;
  params.seed = 9;
  REQUIRE(Sample({1.0f, 3.0f, 2.0f}, params) == 1);
}

TEST_CASE("logits that are not finite are never chosen") {
  REQUIRE(Sample({kNan, 1.0f, kInf, -5.0f, -kInf}, {}) == 1);
  SamplingParams params;
  params.temperature = 1;
  const auto counts = Counts({kNan, 0.0f, kInf, 0.0f, -kInf}, params, 500);
  REQUIRE(counts.size() == 2);
  REQUIRE(counts.count(1) == 1);
  REQUIRE(counts.count(3) == 1);
}

TEST_CASE("top-k keeps the k most likely, ties by the lowest id") {
  SamplingParams params;
  params.temperature = 1;
  const std::vector<double> p = {0.1, 0.3, 0.2, 0.1, 0.3};
  params.top_k = 1;
  REQUIRE(Support(p, params) == std::set<int32_t>{1});
  params.top_k = 2;
  REQUIRE(Support(p, params) == std::set<int32_t>{1, 4});
  params.top_k = 4;
  REQUIRE(Support(p, params) == std::set<int32_t>{0, 1, 2, 4});
  for (int32_t all : {0, 5, 6, std::numeric_limits<int32_t>::max()}) {
    params.top_k = all;
    REQUIRE(Support(p, params).size() == 5);
  }
}

TEST_CASE("top-p keeps the shortest list of most likely tokens that reaches it") {
  SamplingParams params;
  params.temperature = 1;
  const std::vector<double> p = {0.05, 0.5, 0.15, 0.3};
  params.top_p = 1e-6f;
  REQUIRE(Support(p, params) == std::set<int32_t>{1});
  params.top_p = 0.49f;
  REQUIRE(Support(p, params) == std::set<int32_t>{1});
  params.top_p = 0.51f;
  REQUIRE(Support(p, params) == std::set<int32_t>{1, 3});
  params.top_p = 0.79f;
  REQUIRE(Support(p, params) == std::set<int32_t>{1, 3});
  params.top_p = 0.81f;
  REQUIRE(Support(p, params) == std::set<int32_t>{1, 2, 3});
  params.top_p = 1.0f;
  REQUIRE(Support(p, params).size() == 4);
  params.top_p = 0;
  REQUIRE(Support(p, params).size() == 4);
}

TEST_CASE("top-p breaks ties by the lowest id, also beyond the first ordered head") {
  SamplingParams params;
  params.temperature = 1;
  // 1000 equal tokens: half the probability is exactly the first 500 ids.
  params.top_p = 0.5f;
  const auto counts = Counts(std::vector<float>(1000, 1.5f), params, 20000);
  REQUIRE(counts.rbegin()->first == 499);
  REQUIRE(counts.size() == 500);
}

TEST_CASE("min-p drops what is below its share of the most likely token") {
  SamplingParams params;
  params.temperature = 1;
  const std::vector<double> p = {0.05, 0.5, 0.15, 0.3};
  params.min_p = 0.29f;  // 0.145
  REQUIRE(Support(p, params) == std::set<int32_t>{1, 2, 3});
  params.min_p = 0.31f;  // 0.155
  REQUIRE(Support(p, params) == std::set<int32_t>{1, 3});
  params.min_p = 1;
  REQUIRE(Support(p, params) == std::set<int32_t>{1});
}

TEST_CASE("the order is temperature, top-k, top-p, min-p") {
  SamplingParams params;
  params.temperature = 1;
  const std::vector<double> p = {0.4, 0.3, 0.2, 0.1};
  // top-p over what top-k left: 0.4 of 0.7 is 0.571, so token 0 alone reaches 0.55. Over the whole
  // distribution it would not.
  params.top_k = 2;
  params.top_p = 0.55f;
  REQUIRE(Support(p, params) == std::set<int32_t>{0});
  params.top_p = 0.6f;
  REQUIRE(Support(p, params) == std::set<int32_t>{0, 1});
  // Temperature first: at 0.5 the probabilities are as the squares 16 : 9 : 4 : 1, of which token 0
  // has 16 / 30 = 0.533; at 1 it has only 0.4.
  params = {};
  params.temperature = 0.5f;
  params.top_p = 0.5f;
  REQUIRE(Support(p, params) == std::set<int32_t>{0});
  params.temperature = 1;
  REQUIRE(Support(p, params) == std::set<int32_t>{0, 1});
  // min-p after top-p: were token 3 (0.1) dropped before, tokens 0 and 1 would have 0.7 of 0.9,
  // 0.78, and reach 0.75.
  params.top_p = 0.75f;
  params.min_p = 0.3f;
  REQUIRE(Support(p, params) == std::set<int32_t>{0, 1, 2});
}

TEST_CASE("draws follow the probabilities") {
  constexpr int kDraws = 40000;
  const std::vector<double> p = {0.35, 0.05, 0.2, 0.1, 0.25, 0.05};
  SamplingParams params;
  params.temperature = 1;
  // 0.999 quantiles of chi-squared: 20.5 with 5 degrees of freedom, 13.8 with 2.
  for (uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{0xfeedface12345678}}) {
    CAPTURE(seed);
    params.seed = seed;
    REQUIRE(ChiSquared(Counts(LogitsOf(p), params, kDraws), p, kDraws) < 20.5);
  }
  SECTION("after top-k, renormalised") {
    params.top_k = 3;
    const auto counts = Counts(LogitsOf(p), params, kDraws);
    REQUIRE(counts.size() == 3);
    const std::map<int32_t, int> kept = {{0, counts.at(0)}, {1, counts.at(2)}, {2, counts.at(4)}};
    REQUIRE(ChiSquared(kept, {0.35 / 0.8, 0.2 / 0.8, 0.25 / 0.8}, kDraws) < 13.8);
  }
  SECTION("at temperature 2: as the square roots") {
    params.temperature = 2;
    std::vector<double> roots;
    double sum = 0;
    for (double value : p) sum += std::sqrt(value);
    for (double value : p) roots.push_back(std::sqrt(value) / sum);
    REQUIRE(ChiSquared(Counts(LogitsOf(p), params, kDraws), roots, kDraws) < 20.5);
  }
}

TEST_CASE("extreme temperatures and logits") {
  SamplingParams params;
  params.temperature = 1e-30f;
  REQUIRE(Sample({1.0f, 2.0f, 1.9999f}, params) == 1);
  params.temperature = std::numeric_limits<float>::denorm_min();
  REQUIRE(Sample({-3e38f, 3e38f}, params) == 1);
  params.temperature = 1e30f;
  REQUIRE(Counts({-100.0f, 100.0f}, params, 200).size() == 2);
}

TEST_CASE("a choice depends on seed and position, not on the order of calls") {
  const std::vector<float> logits(50, 0.0f);
  SamplingParams params;
  params.temperature = 1;
  params.seed = 4;
  std::vector<int32_t> forward, backward(30);
  for (uint64_t position = 0; position < 30; ++position)
    forward.push_back(Sample(logits, params, position));
  Chooser chooser(50, params);
  for (uint64_t position = 30; position-- > 0;)
    backward[position] = chooser.Choose(logits, position);
  REQUIRE(forward == backward);
  params.seed = 5;
  std::vector<int32_t> other;
  for (uint64_t position = 0; position < 30; ++position)
    other.push_back(Sample(logits, params, position));
  REQUIRE(forward != other);
}

}  // namespace
}  // namespace dsv4
