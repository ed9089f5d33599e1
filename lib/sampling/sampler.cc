// SPDX-License-Identifier: Apache-2.0
// Greedy choice is one pass over the logits. A sampled one collects candidates in the caller's
// scratch, orders only as many of the most likely ones as top-k and top-p look at, and walks their
// weights to the drawn share of the mass.
#include "lib/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/base/error.h"
#include "lib/sampling/rng.h"

namespace dsv4 {
namespace {

using Candidates = std::vector<SamplerScratch::Candidate>;

// More likely first; equals by id. `weight` is a logit or a probability's numerator: both order
// alike.
bool MoreLikely(const SamplerScratch::Candidate& a, const SamplerScratch::Candidate& b) {
  return a.weight > b.weight || (a.weight == b.weight && a.token < b.token);
}

// The lowest id with the largest finite logit, -1 without one.
int32_t ArgMax(absl::Span<const float> logits) {
  int32_t best = -1;
  float best_logit = -std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < logits.size(); ++i) {
    // NaN compares false; the other infinity is above max().
    if (logits[i] > best_logit && logits[i] <= std::numeric_limits<float>::max()) {
      best = static_cast<int32_t>(i);
      best_logit = logits[i];
    }
  }
  return best;
}

// Sum in double, in the order of `candidates`.
double Mass(const Candidates& candidates) {
  double mass = 0;
  for (const auto& candidate : candidates) mass += candidate.weight;
  return mass;
}

// Keeps the `k` most likely, in no particular order.
void KeepTopK(Candidates* candidates, int32_t k) {
  const size_t keep = static_cast<size_t>(k);
  if (keep >= candidates->size()) return;
  std::nth_element(candidates->begin(), candidates->begin() + keep, candidates->end(), MoreLikely);
  candidates->resize(keep);
}

// Keeps the shortest list of most likely candidates whose mass reaches `top_p` of all. Orders ever
// longer heads of the list, because the list is usually a small part of the vocabulary.
void KeepTopP(Candidates* candidates, float top_p) {
  const double wanted = static_cast<double>(top_p) * Mass(*candidates);
  double mass = 0;
  size_t ordered = 0;
  for (size_t head = 64; ordered < candidates->size(); head *= 4) {
    const size_t end = std::min(head, candidates->size());
    const auto first = candidates->begin() + ordered;
    const auto last = candidates->begin() + end;
    if (last != candidates->end()) std::nth_element(first, last, candidates->end(), MoreLikely);
    std::sort(first, last, MoreLikely);
    for (; ordered < end; ++ordered) {
      mass += (*candidates)[ordered].weight;
      if (mass >= wanted) {
        candidates->resize(ordered + 1);
        return;
      }
    }
  }
}

absl::Status OutsideRange(absl::string_view field, double value, absl::string_view range) {
  return InvalidArgument(field, " is ", value, "; ", range);
}

}  // namespace

absl::Status ValidateSampling(const SamplingParams& params) {
  // Written so that NaN fails.
  if (!(params.temperature >= 0 && std::isfinite(params.temperature)))
    return OutsideRange("temperature", params.temperature, "expected 0 (greedy) or more, finite");
  if (params.top_k < 0) return OutsideRange("top_k", params.top_k, "expected 0 (all) or more");
  if (!(params.top_p >= 0 && params.top_p <= 1))
    return OutsideRange("top_p", params.top_p, "expected at most 1 and more than 0 (0 means 1)");
  if (!(params.min_p >= 0 && params.min_p <= 1))
    return OutsideRange("min_p", params.min_p, "expected 0 to 1");
  if (params.max_tokens < 0)
    return InvalidArgument("max_tokens is ", params.max_tokens, "; expected 0 (no limit) or more");
  return absl::OkStatus();
}

SamplerScratch::SamplerScratch(int64_t vocab) { candidates.reserve(static_cast<size_t>(vocab)); }

absl::StatusOr<int32_t> SampleToken(absl::Span<const float> logits, int32_t token_limit,
                                    const SamplingParams& params, uint64_t position,
                                    SamplerScratch* scratch) {
  logits = logits.subspan(0, static_cast<size_t>(std::max(token_limit, 0)));
  const int32_t best = ArgMax(logits);
  if (best < 0) return Internal("none of the ", logits.size(), " logits is finite");
  if (params.temperature == 0) return best;

  Candidates& candidates = scratch->candidates;
  candidates.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isfinite(logits[i])) candidates.push_back({logits[i], static_cast<int32_t>(i)});
  }
  if (params.top_k > 0) KeepTopK(&candidates, params.top_k);

  const float top_logit = logits[best];
  for (auto& candidate : candidates)
    candidate.weight = std::exp((candidate.weight - top_logit) / params.temperature);
  if (params.top_p > 0 && params.top_p < 1) KeepTopP(&candidates, params.top_p);
  // The most likely candidate has weight 1.
  if (params.min_p > 0)
    std::erase_if(candidates, [&](const auto& c) { return c.weight < params.min_p; });

  const double wanted = Uniform(params.seed, position) * Mass(candidates);
  double mass = 0;
  int32_t last = best;
  for (const auto& candidate : candidates) {
    if (candidate.weight == 0) continue;
    mass += candidate.weight;
    last = candidate.token;
    if (mass > wanted) break;
  }
  return last;
}

}  // namespace dsv4
