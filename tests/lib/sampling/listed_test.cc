// SPDX-License-Identifier: Apache-2.0
// A distribution computed from a list of candidates is that of the whole row, bit for bit. The
// lists are the reference kernel's.
#include <memory>
#include <random>

#include "kernels/reference/launch.h"
#include "lib/sampling/rng.h"
#include "lib/sampling/sampler.h"
#include "tests/lib/sampling/candidate_columns.h"
#include "tests/support/catch.h"
#include "tests/support/odd_logits.h"
#include "tests/support/status_test_macros.h"
#include "tests/support/worst_element.h"

namespace dsv4 {
namespace {

SamplingParams AnyParams(int64_t vocab, std::mt19937& random) {
  const float temperatures[] = {0, 1e-30f, 0.01f, 0.6f, 1, 2, 1e30f};
  const float masses[] = {0.01f, 0.5f, 0.95f, 0.999f, 1};
  SamplingParams params{.temperature = temperatures[random() % 7]};
  if (random() % 3 == 0) params.top_k = 1 + static_cast<int32_t>(random() % 100);
  if (random() % 2 == 0) params.top_p = masses[random() % 5];
  if (random() % 3 == 0) params.min_p = random() % 2 == 0 ? 0.05f : 1;
  for (uint32_t i = random() % 3; i > 0; --i) {
    params.banned_tokens.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(vocab)));
  }
  return params;
}

TEST_CASE("candidates are enough for the distribution of the whole row") {
  std::mt19937 random(1);
  const auto list = std::make_unique<CandidateList>();
  int listed[5] = {}, too_many = 0, refused = 0;
  for (int round = 0; round < 6000; ++round) {
    const int64_t vocab = round % 8 == 0 ? 3000 : 1 + static_cast<int64_t>(random() % 300);
    const int32_t with_text = static_cast<int32_t>(vocab - random() % 2);
    Sampler sampler(vocab, with_text, {});
    const SamplingParams params = AnyParams(vocab, random);
    REQUIRE_OK(sampler.SetParams(params));
    const std::vector<float> logits = test::OddLogits(vocab, random);
    const double uniform = Uniform(7, static_cast<uint64_t>(round));
    CAPTURE(round, vocab, params.temperature, params.top_k, params.top_p, params.min_p, uniform);
    Distribution whole(vocab), few(vocab);
    const absl::Status expected =
        sampler.ComputeDistribution(logits, TokenHistory(vocab), TokenRules{}, &whole);
    const auto rule = sampler.Rule(uniform);
    REQUIRE(rule.has_value());
    const std::vector<uint32_t> text = MaskOfText(vocab, with_text, {});
    const CandidateQuery query{
        .rule = *rule,
        .allowed = sampler.choosable().empty() ? text.data() : sampler.choosable().data()};
    reference::LaunchTokenCandidates({}, {.rows = 1,
                                          .vocab = vocab,
                                          .queries = &query,
                                          .logits = logits.data(),
                                          .lists = list.get()});
    if (list->count < 0) {
      ++too_many;
      continue;
    }
    const absl::Status status = sampler.ComputeFromCandidates(*list, TokenRules{}, &few);
    REQUIRE(status == expected);
    if (!status.ok()) {
      ++refused;
      continue;
    }
    ++listed[rule->kind];
    REQUIRE(Draw(few, uniform) == Draw(whole, uniform));
    if (rule->kind == CandidateRule::kDraw) continue;
    REQUIRE(few.mass() == whole.mass());
    const test::CandidateColumns listed_ones(few.candidates()), all(whole.candidates());
    REQUIRE(test::DifferentBits(listed_ones.tokens, all.tokens) == "");
    REQUIRE(test::FarElements(listed_ones.weights, all.weights) == "");
  }
  // All ways were gone.
  for (const int count : listed) REQUIRE(count > 200);
  REQUIRE(too_many > 20);
  REQUIRE(refused > 10);
}

TEST_CASE("a forced token needs no candidate, and rules are checked as for a whole row") {
  Sampler sampler(10, 9, {});
  const auto list = std::make_unique<CandidateList>();
  list->count = 0;
  Distribution out(10);
  REQUIRE_OK(sampler.ComputeFromCandidates(*list, {.forced = 4}, &out));
  REQUIRE(Draw(out, 0.5) == 4);
  REQUIRE_FAILS(sampler.ComputeFromCandidates(*list, {.forced = 9}, &out),
                absl::StatusCode::kInvalidArgument, "has no text");
}

TEST_CASE("penalties, bias and a large top_k need all logits") {
  Sampler sampler(2000, 2000, {});
  for (const SamplingParams& params :
       {SamplingParams{.repetition_penalty = 1.1f}, SamplingParams{.presence_penalty = 1},
        SamplingParams{.frequency_penalty = 1}, SamplingParams{.logit_bias = {{1, 1.0f}}},
        SamplingParams{.temperature = 1, .top_k = kMostCandidates + 1}}) {
    REQUIRE_OK(sampler.SetParams(params));
    REQUIRE_FALSE(sampler.Rule(0.5).has_value());
  }
}

// Against e^x of the mathematical library.
TEST_CASE("weights are e^x rounded to multiples of 2^-32") {
  REQUIRE(TokenWeight(0) == 1);
  REQUIRE(TokenWeight(-0.0f) == 1);
  REQUIRE(TokenWeight(-23) == 0);
  REQUIRE(TokenWeight(-std::numeric_limits<float>::infinity()) == 0);
  for (float x = 0; x > -23; x -= 0.00037f) {
    const float weight = TokenWeight(x);
    const double units = double{weight} * 0x1p32, exact = std::exp(double{x});
    CAPTURE(x);
    REQUIRE(weight <= 1);
    REQUIRE(units == std::floor(units));
    REQUIRE(std::abs(weight - exact) <= exact * 0x1p-23 + 0x1p-32);
  }
}

}  // namespace
}  // namespace dsv4
