// SPDX-License-Identifier: Apache-2.0
// token_candidates of the CUDA backend against the reference: the same lists, whatever their order.
#include <algorithm>
#include <random>

#include "kernels/reference/launch.h"
#include "tests/kernels/operator_memory.h"
#include "tests/support/odd_logits.h"

namespace dsv4::test {
namespace {

CandidateRule AnyRule(std::mt19937& random) {
  const float temperatures[] = {1e-30f, 0.01f, 0.6f, 1, 2, 1e30f};
  return {.kind = static_cast<CandidateRule::Kind>(random() % 5),
          .temperature = temperatures[random() % 6],
          .top_k = 1 + static_cast<int32_t>(random() % 1200),
          .top_p = static_cast<float>(1 + random() % 1000) / 1001,
          .min_p = static_cast<float>(1 + random() % 100) / 100,
          .uniform = random() % 10 == 0 ? 0 : static_cast<double>(random()) * 0x1p-32};
}

void Sort(CandidateList* list) {
  std::sort(list->tokens, list->tokens + std::max(list->count, 0),
            [](const TokenLogit& a, const TokenLogit& b) { return a.token < b.token; });
}

void Compare(int64_t vocab, int32_t rows, int32_t queries, std::mt19937& random) {
  std::vector<float> logits;
  for (int32_t row = 0; row < rows; ++row) {
    const std::vector<float> one = OddLogits(vocab, random);
    logits.insert(logits.end(), one.begin(), one.end());
  }
  const std::vector<uint32_t> masks[] = {AnyMask(vocab, random), AnyMask(vocab, random)};
  const Array<uint32_t> device_masks[] = {{On::kTested, masks[0]}, {On::kTested, masks[1]}};
  std::vector<CandidateQuery> host(static_cast<size_t>(queries)), device;
  for (size_t q = 0; q < host.size(); ++q) {
    CandidateQuery& query = host[q];
    const uint32_t mask = random() % 2;
    query = {.rule = AnyRule(random),
             .row = static_cast<int32_t>(random() % static_cast<uint32_t>(rows)),
             .allowed = masks[mask].data()};
    if (random() % 8 == 0) query = {.rule = {}, .row = -1};
    query.list = static_cast<int32_t>(host.size() - 1 - q);
    device.push_back(query);
    if (query.row >= 0) device.back().allowed = device_masks[mask].data();
  }
  // Of a query that asks nothing, what was there stays.
  std::vector<CandidateList> expected(host.size(), CandidateList{-2, 0, {}});
  const Array<CandidateList> lists(On::kTested, expected);
  std::vector<int32_t> expected_chosen(host.size(), -2);
  const Array<int32_t> chosen(On::kTested, expected_chosen);
  reference::LaunchTokenCandidates({}, {.rows = queries,
                                        .vocab = vocab,
                                        .queries = host.data(),
                                        .logits = logits.data(),
                                        .lists = expected.data(),
                                        .chosen = expected_chosen.data()});
  const Array<float> device_logits(On::kTested, logits);
  const Array<CandidateQuery> device_queries(On::kTested, device);
  Launch(On::kTested, TokenCandidatesParams{.rows = queries,
                                            .vocab = vocab,
                                            .queries = device_queries.data(),
                                            .logits = device_logits.data(),
                                            .lists = lists.data(),
                                            .chosen = chosen.data()});
  std::vector<CandidateList> actual = lists.Get();
  REQUIRE(chosen.Get() == expected_chosen);
  for (size_t q = 0; q < host.size(); ++q) {
    const CandidateRule& rule = host[host.size() - 1 - q].rule;
    CAPTURE(vocab, q, rule.kind, rule.temperature, rule.top_k, rule.top_p, rule.min_p,
            rule.uniform);
    REQUIRE(actual[q].count == expected[q].count);
    if (rule.kind == CandidateRule::kDraw || rule.kind == CandidateRule::kMostMass) {
      REQUIRE(actual[q].mass == expected[q].mass);
    }
    Sort(&actual[q]);
    std::vector<int32_t> tokens, expected_tokens;
    std::vector<float> values, expected_values;
    for (int32_t i = 0; i < expected[q].count; ++i) {
      tokens.push_back(actual[q].tokens[i].token);
      expected_tokens.push_back(expected[q].tokens[i].token);
      values.push_back(actual[q].tokens[i].logit);
      expected_values.push_back(expected[q].tokens[i].logit);
    }
    REQUIRE(DifferentBits(tokens, expected_tokens) == "");
    REQUIRE(FarElements(values, expected_values) == "");
  }
}

TEST_CASE("sm12x token_candidates lists what the reference lists") {
  std::mt19937 random(3);
  for (const int64_t vocab : {1, 2, 31, 32, 33, 500, 1023, 1025, 2048, 9000}) {
    for (const int32_t queries : {0, 1, 2, 3, 6, 8, 48, 64, 65, 192}) {
      Compare(vocab, 3, queries, random);
    }
  }
}

TEST_CASE("sm12x token_candidates of the published vocabulary") {
  std::mt19937 random(4);
  for (int round = 0; round < 6; ++round) Compare(129280, 8, 100, random);
}

}  // namespace
}  // namespace dsv4::test
