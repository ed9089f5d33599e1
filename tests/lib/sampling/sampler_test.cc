// SPDX-License-Identifier: Apache-2.0
// Expected sets and weights are worked out by hand. That draws follow the weights is the matter of
// sampling_statistics_test.cc.
#include "lib/sampling/sampler.h"

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "lib/sampling/rng.h"
#include "tests/lib/sampling/candidate_columns.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"
#include "tests/support/worst_element.h"

namespace dsv4 {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A sampler, and what it needs, for one row of logits at a time.
struct Chooser {
  explicit Chooser(size_t vocab, const SamplingParams& params = {})
      : Chooser(vocab, params, static_cast<int32_t>(vocab), {}) {}
  Chooser(size_t vocab, const SamplingParams& params, int32_t token_limit,
          const std::vector<int32_t>& gaps)
      : sampler(static_cast<int64_t>(vocab), token_limit, gaps),
        history(static_cast<int64_t>(vocab)),
        distribution(static_cast<int64_t>(vocab)) {
    REQUIRE_OK(sampler.SetParams(params));
  }
  absl::Status ComputeDistribution(const std::vector<float>& logits) {
    return sampler.ComputeDistribution(logits, history, rules, &distribution);
  }
  int32_t Choose(const std::vector<float>& logits, uint64_t position) {
    REQUIRE_OK(ComputeDistribution(logits));
    return Draw(distribution, Uniform(sampler.params().seed, position));
  }
  std::vector<int32_t> Tokens() const {
    std::vector<int32_t> tokens;
    for (const Candidate& candidate : distribution.candidates()) tokens.push_back(candidate.token);
    return tokens;
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

// The tokens that can be drawn.
std::set<int32_t> Support(const std::vector<double>& probabilities, const SamplingParams& params) {
  Chooser chooser(probabilities.size(), params);
  REQUIRE_OK(chooser.ComputeDistribution(LogitsOf(probabilities)));
  const std::vector<int32_t> tokens = chooser.Tokens();
  return {tokens.begin(), tokens.end()};
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
  // Temperature first: at 0.5 the probabilities are as the squares 16 : 9 : 4 : 1, and token 0 has
  // 16 / 30 = 0.533; at 1 it has only 0.4.
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

TEST_CASE("extreme temperatures and logits") {
  SamplingParams params;
  params.temperature = 1e-30f;
  REQUIRE(Sample({1.0f, 2.0f, 1.9999f}, params) == 1);
  params.temperature = std::numeric_limits<float>::denorm_min();
  REQUIRE(Sample({-3e38f, 3e38f}, params) == 1);
  // e^-20 of the most likely one is more than 2^-32 of it, e^-200 is less.
  Chooser chooser(3, {.temperature = 0.01f});
  REQUIRE_OK(chooser.ComputeDistribution({1, 3, 2.8f}));
  REQUIRE(chooser.Tokens() == std::vector<int32_t>{1, 2});
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

TEST_CASE("without a finite logit the result is an error") {
  for (const float temperature : {0.0f, 1.0f}) {
    Chooser chooser(3, {.temperature = temperature});
    REQUIRE_FAILS(chooser.ComputeDistribution({kNan, kInf, -kInf}), absl::StatusCode::kInternal,
                  "none of the 3 logits to choose from is finite");
  }
}

TEST_CASE("tokens without text are never chosen") {
  // Limit 35 of 40, and a gap at 33.
  std::vector<float> logits(40, 1.0f);
  for (int32_t token : {33, 35, 39}) logits[token] = 9;
  for (const float temperature : {0.0f, 1.0f}) {
    Chooser chooser(40, {.temperature = temperature}, 35, {33});
    REQUIRE_OK(chooser.ComputeDistribution(logits));
    std::vector<int32_t> expected = {0};
    if (temperature > 0) {
      expected.clear();
      for (int32_t token = 0; token < 35; ++token) {
        if (token != 33) expected.push_back(token);
      }
    }
    REQUIRE(chooser.Tokens() == expected);
  }
}

// The distribution's weights, which are relative to the most likely token's.
void RequireWeights(const Chooser& chooser, const std::vector<Candidate>& expected) {
  const test::CandidateColumns found(chooser.distribution.candidates()), want(expected);
  REQUIRE(test::DifferentBits(found.tokens, want.tokens) == "");
  REQUIRE(test::FarElements(found.weights, want.weights, {.relative = 1e-5}) == "");
}

constexpr float kE1 = 0.36787944f, kE2 = 0.13533528f, kE3 = 0.04978707f;  // exp(-n)
constexpr float kEHalf = 0.60653066f, kEQuarter = 0.77880078f;            // exp(-1/2), exp(-1/4)

TEST_CASE("the repetition penalty divides positive logits and multiplies negative ones") {
  // Of prompt and output alike, and once however often: 2 / 2, -1 * 2, 0 * 2.
  Chooser chooser(5, {.temperature = 1, .repetition_penalty = 2});
  chooser.history.Reset({0, 0});
  for (const int32_t token : {1, 1, 1, 4}) chooser.history.Push(token);
  REQUIRE_OK(chooser.ComputeDistribution({2, -1, 0.5f, 1, 0}));
  RequireWeights(chooser, {{0, 1}, {1, kE3}, {2, kEHalf}, {3, 1}, {4, kE1}});
  // Below 1 it favours what has been: 2 / 0.5, -1 * 0.5.
  REQUIRE_OK(chooser.sampler.SetParams({.temperature = 1, .repetition_penalty = 0.5f}));
  REQUIRE_OK(chooser.ComputeDistribution({2, -1, 2, 1, 2}));
  const float e45 = 0.011108997f;  // exp(-4.5)
  RequireWeights(chooser, {{0, 1}, {1, e45}, {2, kE2}, {3, kE3}, {4, 1}});
  for (const float off : {0.0f, 1.0f}) {
    REQUIRE_OK(chooser.sampler.SetParams({.temperature = 1, .repetition_penalty = off}));
    REQUIRE_OK(chooser.ComputeDistribution({0, 1, 0, 1, -1}));
    RequireWeights(chooser, {{0, kE1}, {1, 1}, {2, kE1}, {3, 1}, {4, kE2}});
  }
}

TEST_CASE("presence and frequency penalties look at the output alone") {
  // 2; -1 - 0.5 - 2 * 0.25; 0.5; 1 - 0.5 - 0.25.
  Chooser chooser(4, {.temperature = 1, .presence_penalty = 0.5f, .frequency_penalty = 0.25f});
  chooser.history.Reset({0, 1, 0});
  for (const int32_t token : {1, 3, 1}) chooser.history.Push(token);
  REQUIRE_OK(chooser.ComputeDistribution({2, 1, 1, 1.75f}));
  RequireWeights(chooser, {{0, 1}, {1, kE2}, {2, kE1}, {3, kE1}});
  // Each by itself; negative ones favour.
  REQUIRE_OK(chooser.sampler.SetParams({.temperature = 1, .presence_penalty = 1}));
  REQUIRE_OK(chooser.ComputeDistribution({0, 0, 0, 0}));
  RequireWeights(chooser, {{0, 1}, {1, kE1}, {2, 1}, {3, kE1}});
  REQUIRE_OK(chooser.sampler.SetParams({.temperature = 1, .frequency_penalty = -1}));
  REQUIRE_OK(chooser.ComputeDistribution({0, 0, 0, 0}));
  RequireWeights(chooser, {{0, kE2}, {1, 1}, {2, kE2}, {3, kE1}});
}

TEST_CASE("biases add to logits, those of one token together") {
  Chooser chooser(4, {.temperature = 1, .logit_bias = {{1, -1}, {3, 2}, {1, 0.5f}}});
  REQUIRE_OK(chooser.ComputeDistribution({0, 0, 0, 0}));
  RequireWeights(chooser, {{0, kE2}, {1, 0.082085f}, {2, kE2}, {3, 1}});
}

TEST_CASE("repetition comes before frequency and presence, they before bias") {
  // 2 / 2 - 1 = 0; the other way it were 0.5.
  Chooser chooser(2, {.temperature = 1, .repetition_penalty = 2, .frequency_penalty = 1});
  chooser.history.Push(0);
  REQUIRE_OK(chooser.ComputeDistribution({2, 0}));
  RequireWeights(chooser, {{0, 1}, {1, 1}});
  // 0 / 2 + 1 = 1; the other way it were 0.5.
  REQUIRE_OK(chooser.sampler.SetParams(
      {.temperature = 1, .repetition_penalty = 2, .logit_bias = {{0, 1}}}));
  REQUIRE_OK(chooser.ComputeDistribution({0, 1}));
  RequireWeights(chooser, {{0, 1}, {1, 1}});
}

TEST_CASE("penalties and bias come before temperature") {
  // (1 - 1) / 0.5 against 1 / 0.5, exp(-2); after it, exp(-1).
  Chooser chooser(2, {.temperature = 0.5f, .presence_penalty = 1});
  chooser.history.Push(0);
  REQUIRE_OK(chooser.ComputeDistribution({1, 1}));
  RequireWeights(chooser, {{0, kE2}, {1, 1}});
  REQUIRE_OK(chooser.sampler.SetParams({.temperature = 2, .logit_bias = {{0, 0.5f}}}));
  REQUIRE_OK(chooser.ComputeDistribution({0, 0}));
  RequireWeights(chooser, {{0, 1}, {1, kEQuarter}});
}

TEST_CASE("penalties, bias, bans and mask come before top-k") {
  const std::vector<float> logits = {3, 2, 1};
  Chooser chooser(3, {.temperature = 1, .top_k = 2, .frequency_penalty = 2});
  chooser.history.Push(1);
  REQUIRE_OK(chooser.ComputeDistribution(logits));
  RequireWeights(chooser, {{0, 1}, {2, kE2}});
  REQUIRE_OK(chooser.sampler.SetParams({.temperature = 1, .top_k = 2, .logit_bias = {{2, 1.5f}}}));
  REQUIRE_OK(chooser.ComputeDistribution(logits));
  RequireWeights(chooser, {{0, 1}, {2, kEHalf}});
  REQUIRE_OK(chooser.sampler.SetParams({.temperature = 1, .top_k = 2, .banned_tokens = {0}}));
  REQUIRE_OK(chooser.ComputeDistribution(logits));
  RequireWeights(chooser, {{1, 1}, {2, kE1}});
  REQUIRE_OK(chooser.sampler.SetParams({.temperature = 1, .top_k = 2}));
  const uint32_t mask = 0b101;
  chooser.rules.allowed = absl::MakeConstSpan(&mask, 1);
  REQUIRE_OK(chooser.ComputeDistribution(logits));
  RequireWeights(chooser, {{0, 1}, {2, kE2}});
}

TEST_CASE("penalties, bias, bans and mask decide the greedy choice") {
  const std::vector<float> logits = {3, 2.5f, 2.5f, 0};
  Chooser chooser(4, {.presence_penalty = 0.5f});
  chooser.history.Push(0);
  REQUIRE_OK(chooser.ComputeDistribution(logits));
  REQUIRE(chooser.Tokens() == std::vector<int32_t>{0});  // a tie with 1 and 2
  chooser.history.Push(0);
  REQUIRE_OK(chooser.sampler.SetParams({.frequency_penalty = 0.5f}));
  REQUIRE_OK(chooser.ComputeDistribution(logits));
  REQUIRE(chooser.Tokens() == std::vector<int32_t>{1});
  REQUIRE_OK(chooser.sampler.SetParams({.repetition_penalty = 1.25f}));
  REQUIRE_OK(chooser.ComputeDistribution(logits));
  REQUIRE(chooser.Tokens() == std::vector<int32_t>{1});
  REQUIRE_OK(chooser.sampler.SetParams({.logit_bias = {{3, 100}}}));
  REQUIRE_OK(chooser.ComputeDistribution(logits));
  REQUIRE(chooser.Tokens() == std::vector<int32_t>{3});
  REQUIRE_OK(chooser.sampler.SetParams({.banned_tokens = {0, 1}}));
  REQUIRE_OK(chooser.ComputeDistribution(logits));
  REQUIRE(chooser.Tokens() == std::vector<int32_t>{2});
  const uint32_t mask = 0b1001;
  chooser.rules.allowed = absl::MakeConstSpan(&mask, 1);
  REQUIRE_OK(chooser.ComputeDistribution(logits));
  REQUIRE(chooser.Tokens() == std::vector<int32_t>{3});
}

TEST_CASE("a mask reaches every token of a vocabulary of any size") {
  for (const int32_t vocab : {1, 31, 32, 33, 64, 100}) {
    CAPTURE(vocab);
    for (const float temperature : {0.0f, 1.0f}) {
      Chooser chooser(static_cast<size_t>(vocab), {.temperature = temperature});
      const std::vector<float> logits(static_cast<size_t>(vocab), 0.5f);
      for (int32_t token = 0; token < vocab; ++token) {
        // Bits beyond the vocabulary mean nothing.
        std::vector<uint32_t> mask(static_cast<size_t>(TokenMaskWords(vocab)));
        mask[token / 32] |= uint32_t{1} << token % 32;
        if (vocab % 32 != 0) mask.back() |= ~uint32_t{0} << vocab % 32;
        chooser.rules.allowed = mask;
        REQUIRE_OK(chooser.ComputeDistribution(logits));
        REQUIRE(chooser.Tokens() == std::vector<int32_t>{token});
      }
    }
  }
}

TEST_CASE("a moved logit that overflows stays a candidate") {
  Chooser chooser(2, {.repetition_penalty = 0.01f});
  chooser.history.Push(0);
  REQUIRE_OK(chooser.ComputeDistribution({3e38f, 1}));
  REQUIRE(chooser.Tokens() == std::vector<int32_t>{0});
  REQUIRE_OK(chooser.sampler.SetParams({.repetition_penalty = 100, .banned_tokens = {1}}));
  REQUIRE_OK(chooser.ComputeDistribution({-3e38f, 1}));
  REQUIRE(chooser.Tokens() == std::vector<int32_t>{0});
}

TEST_CASE("logits that are not finite stay so whatever the rules") {
  Chooser chooser(4, {.temperature = 1,
                      .repetition_penalty = 2,
                      .presence_penalty = -2,
                      .logit_bias = {{0, 100}, {1, 100}, {2, 100}}});
  for (const int32_t token : {0, 1, 2}) chooser.history.Push(token);
  REQUIRE_OK(chooser.ComputeDistribution({kNan, kInf, -kInf, 0}));
  REQUIRE(chooser.Tokens() == std::vector<int32_t>{3});
}

TEST_CASE("a forced token is certain, whatever its logit") {
  for (const float temperature : {0.0f, 1.0f}) {
    Chooser chooser(40, {.temperature = temperature, .top_k = 1, .forced_tokens = {36, 2}});
    REQUIRE(chooser.sampler.ForcedToken(0) == 36);
    REQUIRE(chooser.sampler.ForcedToken(1) == 2);
    REQUIRE(chooser.sampler.ForcedToken(2) == -1);
    chooser.rules.forced = 36;
    for (const float logit : {-3e38f, kNan, -kInf}) {
      std::vector<float> logits(40, 1.0f);
      logits[36] = logit;
      REQUIRE_OK(chooser.ComputeDistribution(logits));
      REQUIRE(chooser.Tokens() == std::vector<int32_t>{36});
    }
    const std::vector<uint32_t> mask = {0, 1u << (36 - 32)};
    chooser.rules.allowed = mask;
    REQUIRE_OK(chooser.ComputeDistribution(std::vector<float>(40)));
    REQUIRE(chooser.Tokens() == std::vector<int32_t>{36});
  }
}

TEST_CASE("a position without a token to choose is an error that says why") {
  const std::vector<float> logits(34);
  constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
  for (const float temperature : {0.0f, 1.0f}) {
    Chooser chooser(34, {.temperature = temperature});
    const std::vector<uint32_t> none(2), last = {0, 2}, beyond = {0, 1u << 31}, wrong(1);
    chooser.rules.allowed = none;
    REQUIRE_FAILS(chooser.ComputeDistribution(logits), kInvalid,
                  "the mask of allowed tokens allows none");
    chooser.rules.allowed = beyond;
    REQUIRE_FAILS(chooser.ComputeDistribution(logits), kInvalid,
                  "only tokens that are banned or have no text");
    chooser.rules.allowed = wrong;
    REQUIRE_FAILS(chooser.ComputeDistribution(logits), kInvalid, "has 1 words; expected 2");
    chooser.rules = {.allowed = last, .forced = 5};
    REQUIRE_FAILS(chooser.ComputeDistribution(logits), kInvalid,
                  "token 5 is forced, but the mask of allowed tokens forbids it");
    SamplingParams params = {.temperature = temperature, .banned_tokens = {33}};
    REQUIRE_OK(chooser.sampler.SetParams(params));
    chooser.rules = {.allowed = last};
    REQUIRE_FAILS(chooser.ComputeDistribution(logits), kInvalid,
                  "only tokens that are banned or have no text");
    chooser.rules = {.forced = 33};
    REQUIRE_FAILS(chooser.ComputeDistribution(logits), kInvalid,
                  "token 33 is forced, but is banned");
    for (int32_t token = 0; token < 33; ++token) params.banned_tokens.push_back(token);
    REQUIRE_OK(chooser.sampler.SetParams(params));
    chooser.rules = {};
    REQUIRE_FAILS(chooser.ComputeDistribution(logits), kInvalid, "banned_tokens holds every token");
  }
}

TEST_CASE("parameters that are refused change nothing") {
  Chooser chooser(40, {.banned_tokens = {1}}, 35, {33});
  constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
  REQUIRE_FAILS(chooser.sampler.SetParams({.top_k = -1}), kInvalid, "top_k is -1");
  REQUIRE_FAILS(chooser.sampler.SetParams({.banned_tokens = {7}, .forced_tokens = {5, 7}}),
                kInvalid, "forced_tokens[1] is token 7, which banned_tokens holds, too");
  for (const int32_t without_text : {33, 35, 39}) {
    REQUIRE_FAILS(chooser.sampler.SetParams({.forced_tokens = {without_text}}), kInvalid,
                  "which has no text");
  }
  REQUIRE(chooser.sampler.params().banned_tokens == std::vector<int32_t>{1});
  std::vector<float> logits(40);
  logits[1] = 2;
  logits[7] = 1;
  REQUIRE_OK(chooser.ComputeDistribution(logits));
  REQUIRE(chooser.Tokens() == std::vector<int32_t>{7});
  // A ban ends with the parameters that asked for it.
  REQUIRE_OK(chooser.sampler.SetParams({}));
  REQUIRE_OK(chooser.ComputeDistribution(logits));
  REQUIRE(chooser.Tokens() == std::vector<int32_t>{1});
}

}  // namespace
}  // namespace dsv4
