// SPDX-License-Identifier: Apache-2.0
#include "kernels/op/token_candidates.h"

#include <cmath>

#include "kernels/reference/launch.h"

namespace dsv4::reference {
namespace {

template <class Visit>
void ForEachToken(const TokenCandidatesParams& params, const CandidateQuery& query, Visit&& visit) {
  const float* const logits = params.logits + query.row * params.vocab;
  for (int32_t token = 0; token < params.vocab; ++token) {
    const bool allowed = (query.allowed[token / 32] >> (token % 32) & 1) != 0;
    if (allowed && std::isfinite(logits[token])) visit(token, logits[token]);
  }
}

// The last bin of the first ones whose measures reach `wanted`.
int32_t LastBin(const uint64_t* bins, double unit, double wanted) {
  uint64_t sum = 0;
  for (int32_t bin = 0; bin < kCandidateBins; ++bin) {
    sum += bins[bin];
    if (static_cast<double>(sum) * unit >= wanted) return bin;
  }
  return kCandidateBins - 1;
}

void Answer(const TokenCandidatesParams& params, const CandidateQuery& query, CandidateList* list) {
  if (query.row < 0) return;
  const CandidateRule& rule = query.rule;
  TokenLogit best{-1, 0};
  ForEachToken(params, query, [&](int32_t token, float logit) {
    if (best.token < 0 || logit > best.logit) best = {token, logit};
  });
  list->count = 0;
  list->mass = 0;
  const auto add = [&](int32_t token, float logit) {
    if (list->count >= 0 && list->count < kMostCandidates) {
      list->tokens[list->count++] = {token, logit};
    } else {
      list->count = -1;
    }
  };
  if (best.token < 0) return;
  if (rule.kind == CandidateRule::kLargest) return add(best.token, best.logit);
  if (rule.kind == CandidateRule::kMostLikely) {
    uint64_t counts[kCandidateBins] = {};
    ForEachToken(params, query,
                 [&](int32_t, float logit) { ++counts[DistanceBin(best.logit, logit)]; });
    const int32_t last = LastBin(counts, 1, rule.top_k);
    return ForEachToken(params, query, [&](int32_t token, float logit) {
      if (DistanceBin(best.logit, logit) <= last) add(token, logit);
    });
  }
  const auto for_each_weight = [&](auto&& visit) {
    ForEachToken(params, query, [&](int32_t token, float logit) {
      const float weight = TokenWeight((logit - best.logit) / rule.temperature);
      if (weight > 0) visit(token, logit, weight);
    });
  };
  if (rule.kind == CandidateRule::kLeastWeight) {
    return for_each_weight([&](int32_t token, float logit, float weight) {
      if (weight >= rule.min_p) add(token, logit);
    });
  }
  uint64_t units[kCandidateBins] = {};
  for_each_weight([&](int32_t, float, float weight) {
    units[WeightBin(weight)] += WeightUnits(weight);
    list->mass += weight;
  });
  if (rule.kind == CandidateRule::kMostMass) {
    const int32_t last = LastBin(units, 0x1p-32, double{rule.top_p} * list->mass);
    return for_each_weight([&](int32_t token, float logit, float weight) {
      if (WeightBin(weight) <= last) add(token, logit);
    });
  }
  const double wanted = rule.uniform * list->mass;
  double mass = 0;
  for_each_weight([&](int32_t token, float logit, float weight) {
    mass += weight;
    if (mass > wanted && list->count == 0) add(token, logit);
  });
}

}  // namespace

void LaunchTokenCandidates(const LaunchContext&, const TokenCandidatesParams& params) {
  for (int32_t q = 0; q < params.rows; ++q) {
    const CandidateQuery& query = params.queries[q];
    CandidateList* const list = &params.lists[query.list];
    Answer(params, query, list);
    if (query.row < 0 || params.chosen == nullptr) continue;
    const bool single =
        query.rule.kind == CandidateRule::kLargest || query.rule.kind == CandidateRule::kDraw;
    params.chosen[query.list] = single && list->count == 1 ? list->tokens[0].token : -1;
  }
}

}  // namespace dsv4::reference
