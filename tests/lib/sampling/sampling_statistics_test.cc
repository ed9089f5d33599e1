// SPDX-License-Identifier: Apache-2.0
// Drawn tokens follow the distribution that the rules define: chi-squared over 100 000 draws with
// fixed seeds. The expected probabilities are worked out here, the plain way. A draw that is wrong
// by 2 % fails the same test.
#include <cmath>
#include <numeric>
#include <vector>

#include "lib/sampling/rng.h"
#include "lib/sampling/sampler.h"
#include "tests/support/chi_squared.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

using Row = std::vector<double>;

constexpr int64_t kDraws = 100'000;
constexpr double kLimit = 1e-3;

std::vector<float> LogitsOf(const Row& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

Row Normalised(Row weights) {
  const double mass = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= mass;
  return weights;
}

Row Power(Row probabilities, double exponent) {
  for (double& p : probabilities) p = std::pow(p, exponent);
  return Normalised(probabilities);
}

Row Only(const std::vector<size_t>& kept, const Row& probabilities) {
  Row weights(probabilities.size());
  for (const size_t token : kept) weights[token] = probabilities[token];
  return Normalised(weights);
}

Distribution DistributionOf(const Row& probabilities, const SamplingParams& params) {
  const int64_t vocab = static_cast<int64_t>(probabilities.size());
  Sampler sampler(vocab, static_cast<int32_t>(vocab), {});
  REQUIRE_OK(sampler.SetParams(params));
  Distribution distribution(vocab);
  REQUIRE_OK(
      sampler.ComputeDistribution(LogitsOf(probabilities), TokenHistory(vocab), {}, &distribution));
  return distribution;
}

const Row kModel = {0.12, 0.30, 0.04, 0.16, 0.06, 0.22, 0.10};

struct Case {
  const char* name;
  SamplingParams params;
  Row expected;
};

std::vector<Case> Cases() {
  return {
      {"temperature 1", {.temperature = 1}, kModel},
      {"temperature 0.7", {.temperature = 0.7f}, Power(kModel, 1 / 0.7)},
      // 0.30 + 0.22 + 0.16 is short of 0.75; with 0.12 it is 0.80.
      {"top-p", {.temperature = 1, .top_p = 0.75f}, Only({0, 1, 3, 5}, kModel)},
      // What is below 0.09.
      {"min-p", {.temperature = 1, .min_p = 0.3f}, Only({0, 1, 3, 5, 6}, kModel)},
      {"top-k at 0.7", {.temperature = 0.7f, .top_k = 3}, Only({1, 3, 5}, Power(kModel, 1 / 0.7))},
      // The four most likely, whose powers 0.7 are 0.4305, 0.3465, 0.2772 and 0.2267, 1.2809
      // together: the first three reach 0.8.
      {"all of them at 1 / 0.7",
       {.temperature = 1 / 0.7f, .top_k = 4, .top_p = 0.8f, .min_p = 0.7f},
       Only({1, 5}, Power(kModel, 0.7))},
  };
}

TEST_CASE("plain draws follow the distribution") {
  for (const Case& c : Cases()) {
    for (const uint64_t seed : {uint64_t{1}, uint64_t{0xfeedface12345678}}) {
      CAPTURE(c.name, seed);
      const Distribution p = DistributionOf(kModel, c.params);
      std::vector<int64_t> counts(kModel.size());
      for (int64_t position = 0; position < kDraws; ++position)
        ++counts[Draw(p, Uniform(seed, position))];
      REQUIRE(test::ChiSquaredPValue(counts, c.expected) > kLimit);
    }
  }
}

// A chance of 2 % to go to the first token must show.
TEST_CASE("the test notices draws that are wrong by 2 %") {
  for (const Case& c : {Cases()[0], Cases()[1]}) {
    CAPTURE(c.name);
    const Distribution p = DistributionOf(kModel, c.params);
    std::vector<int64_t> counts(kModel.size());
    for (int64_t position = 0; position < kDraws; ++position) {
      ++counts[Draw(p, 0.98 * Uniform(1, position))];
    }
    REQUIRE(test::ChiSquaredPValue(counts, c.expected) < kLimit);
  }
}

// Draws by one number are equal where the tokens' shares overlap. Of 0.12, 0.42, 0.46, 0.62, 0.68,
// 0.90 and of 0.13, 0.41, 0.46, 0.63, 0.68, 0.89, where the shares end, 0.96 is overlap.
TEST_CASE("a draft from nearly the model's distribution is nearly always what the model draws") {
  const Distribution p = DistributionOf(kModel, {.temperature = 1});
  const Distribution q =
      DistributionOf({0.13, 0.28, 0.05, 0.17, 0.05, 0.21, 0.11}, {.temperature = 1});
  int64_t equal = 0;
  for (int64_t position = 0; position < kDraws; ++position) {
    const double uniform = Uniform(3, position);
    equal += Draw(p, uniform) == Draw(q, uniform);
  }
  REQUIRE(test::ChiSquaredPValue({equal, kDraws - equal}, {0.96, 0.04}) > kLimit);
}

}  // namespace
}  // namespace dsv4
