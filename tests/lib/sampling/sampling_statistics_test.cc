// SPDX-License-Identifier: Apache-2.0
// Drawn tokens follow the distribution that the rules define, also when a draft is drawn first and
// verified: chi-squared over 100 000 draws with fixed seeds. The expected probabilities are worked
// out here, the plain way. A verifier that is wrong by 2 % fails the same test.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "absl/strings/string_view.h"
#include "lib/sampling/rng.h"
#include "lib/sampling/sampler.h"
#include "lib/sampling/verify_draft.h"
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

Distribution Shaped(const Row& probabilities, const SamplingParams& params) {
  const int64_t vocab = static_cast<int64_t>(probabilities.size());
  Sampler sampler(vocab, static_cast<int32_t>(vocab), {});
  REQUIRE_OK(sampler.SetParams(params));
  Distribution distribution(vocab);
  REQUIRE_OK(sampler.Shape(LogitsOf(probabilities), TokenHistory(vocab), {}, &distribution));
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
      const Distribution p = Shaped(kModel, c.params);
      std::vector<int64_t> counts(kModel.size());
      for (int64_t position = 0; position < kDraws; ++position)
        ++counts[Draw(p, Uniform(seed, position))];
      REQUIRE(test::ChiSquaredPValue(counts, c.expected) > kLimit);
    }
  }
}

// Drafts that a drafter may be drawn from, from nearly right to never right.
struct Drafter {
  const char* name;
  Row probabilities;
};

std::vector<Drafter> Drafters() {
  return {{"good", {0.13, 0.28, 0.05, 0.17, 0.05, 0.21, 0.11}},
          {"the model itself", kModel},
          {"bad", {0.05, 0.02, 0.40, 0.03, 0.35, 0.05, 0.10}},
          {"flat", Row(kModel.size(), 1.0 / 7)},
          {"sure and right", {1e-9, 1, 1e-9, 1e-9, 1e-9, 1e-9, 1e-9}},
          {"sure and wrong", {1e-9, 1e-9, 1, 1e-9, 1e-9, 1e-9, 1e-9}}};
}

using Verifier = std::function<Verdict(const Distribution& p, const Distribution& q, int32_t draft,
                                       uint64_t seed, uint64_t position)>;

// Tokens by speculation with one draft each.
std::vector<int64_t> SpeculatedCounts(const Distribution& p, const Distribution& q, uint64_t seed,
                                      const Verifier& verify, int64_t* accepted = nullptr) {
  std::vector<int64_t> counts(kModel.size());
  for (int64_t position = 0; position < kDraws; ++position) {
    const int32_t draft = Draw(q, Uniform(seed, position, DrawKind::kDraft));
    const Verdict verdict = verify(p, q, draft, seed, position);
    if (verdict.accepted && verdict.token != draft) FAIL("a draft was accepted and replaced");
    ++counts[verdict.token];
    if (accepted != nullptr) *accepted += verdict.accepted;
  }
  return counts;
}

TEST_CASE("verified drafts follow the model's distribution whatever drafted") {
  for (const Case& c : Cases()) {
    const Distribution p = Shaped(kModel, c.params);
    for (const Drafter& drafter : Drafters()) {
      CAPTURE(c.name, drafter.name);
      const Distribution q = Shaped(drafter.probabilities, c.params);
      int64_t accepted = 0;
      const std::vector<int64_t> counts = SpeculatedCounts(p, q, 3, VerifyDraft, &accepted);
      REQUIRE(test::ChiSquaredPValue(counts, c.expected) > kLimit);
      // The chance to accept is the sum of min(p, q).
      double overlap = 0;
      for (int32_t token = 0; token < 7; ++token)
        overlap += std::min(Probability(p, token), Probability(q, token));
      if (overlap > 1 - 1e-6) {
        REQUIRE(accepted == kDraws);
      } else {
        REQUIRE(test::ChiSquaredPValue({accepted, kDraws - accepted}, {overlap, 1 - overlap}) >
                kLimit);
      }
    }
  }
}

TEST_CASE("verified drafts follow the model's distribution when it shares no token with theirs") {
  const Distribution p =
      Shaped(kModel, {.temperature = 1, .banned_tokens = {0, 1, 2}});  // 3, 4, 5, 6: 0.54
  const Distribution q = Shaped(kModel, {.temperature = 1, .banned_tokens = {3, 4, 5, 6}});
  int64_t accepted = 0;
  const std::vector<int64_t> counts = SpeculatedCounts(p, q, 4, VerifyDraft, &accepted);
  REQUIRE(accepted == 0);
  REQUIRE(test::ChiSquaredPValue(counts, Only({3, 4, 5, 6}, kModel)) > kLimit);
}

TEST_CASE("drafts without probabilities are points, and verified ones follow the model's") {
  const Distribution p = Shaped(kModel, {.temperature = 1});
  for (const int32_t token : {1, 2}) {
    CAPTURE(token);
    Distribution q(7);
    q.SetPoint(token);
    int64_t accepted = 0;
    const std::vector<int64_t> counts = SpeculatedCounts(p, q, 5, VerifyDraft, &accepted);
    REQUIRE(test::ChiSquaredPValue(counts, kModel) > kLimit);
    REQUIRE(test::ChiSquaredPValue({accepted, kDraws - accepted},
                                   {kModel[token], 1 - kModel[token]}) > kLimit);
  }
}

TEST_CASE("a greedy model accepts exactly its argmax") {
  const Distribution p = Shaped(kModel, {});
  const Distribution q = Shaped(kModel, {.temperature = 1});
  for (uint64_t position = 0; position < 1000; ++position) {
    for (int32_t draft = 0; draft < 7; ++draft) {
      const Verdict verdict = VerifyDraft(p, q, draft, 6, position);
      REQUIRE(verdict.token == 1);
      REQUIRE(verdict.accepted == (draft == 1));
    }
  }
}

// What the tests above must notice.
Verdict AcceptTooOften(const Distribution& p, const Distribution& q, int32_t draft, uint64_t seed,
                       uint64_t position) {
  const double ratio = Probability(p, draft) / Probability(q, draft) + 0.02;
  if (Uniform(seed, position, DrawKind::kAcceptance) < ratio) return {draft, true};
  return {DrawResidual(p, q, Uniform(seed, position, DrawKind::kResidual)), false};
}

Verdict AcceptTooSeldom(const Distribution& p, const Distribution& q, int32_t draft, uint64_t seed,
                        uint64_t position) {
  const double ratio = std::min(1.0, Probability(p, draft) / Probability(q, draft)) - 0.02;
  if (Uniform(seed, position, DrawKind::kAcceptance) < ratio) return {draft, true};
  return {DrawResidual(p, q, Uniform(seed, position, DrawKind::kResidual)), false};
}

Verdict ReplaceFromModel(const Distribution& p, const Distribution& q, int32_t draft, uint64_t seed,
                         uint64_t position) {
  const Verdict verdict = VerifyDraft(p, q, draft, seed, position);
  if (verdict.accepted) return verdict;
  return {Draw(p, Uniform(seed, position, DrawKind::kResidual)), false};
}

Verdict ReplaceByTheAcceptanceNumber(const Distribution& p, const Distribution& q, int32_t draft,
                                     uint64_t seed, uint64_t position) {
  const Verdict verdict = VerifyDraft(p, q, draft, seed, position);
  if (verdict.accepted) return verdict;
  return {DrawResidual(p, q, Uniform(seed, position, DrawKind::kAcceptance)), false};
}

Verdict VerifyAgainstWrongDrafter(const Distribution& p, const Distribution&, int32_t draft,
                                  uint64_t seed, uint64_t position) {
  return VerifyDraft(p, p, draft, seed, position);
}

TEST_CASE("the test notices a verifier that is wrong by 2 %, and other wrong ones") {
  struct Mutant {
    const char* name;
    const char* drafter;
    Verifier verify;
  };
  const std::vector<Mutant> mutants = {
      {"accepts 2 % too often", "bad", AcceptTooOften},
      {"accepts 2 % too seldom", "good", AcceptTooSeldom},
      {"draws the replacement from the model", "bad", ReplaceFromModel},
      {"uses one number twice", "bad", ReplaceByTheAcceptanceNumber},
      {"divides by other probabilities than drafted", "bad", VerifyAgainstWrongDrafter}};
  for (const Mutant& mutant : mutants) {
    for (const Drafter& drafter : Drafters()) {
      if (absl::string_view(drafter.name) != mutant.drafter) continue;
      for (const Case& c : {Cases()[0], Cases()[1]}) {
        CAPTURE(mutant.name, c.name);
        const Distribution p = Shaped(kModel, c.params);
        const Distribution q = Shaped(drafter.probabilities, c.params);
        REQUIRE(test::ChiSquaredPValue(SpeculatedCounts(p, q, 3, VerifyDraft), c.expected) >
                kLimit);
        REQUIRE(test::ChiSquaredPValue(SpeculatedCounts(p, q, 3, mutant.verify), c.expected) <
                kLimit);
      }
    }
  }
}

}  // namespace
}  // namespace dsv4
