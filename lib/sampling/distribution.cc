// SPDX-License-Identifier: Apache-2.0
#include "lib/sampling/distribution.h"

#include <algorithm>
#include <cstddef>

namespace dsv4 {
namespace {

// The positive part of p - q, as (token, probability) in token order.
template <class Visit>
void ForEachResidual(const Distribution& p, const Distribution& q, Visit&& visit) {
  const double p_scale = 1 / p.mass(), q_scale = 1 / q.mass();
  auto of_q = q.candidates().begin();
  for (const Candidate& candidate : p.candidates()) {
    while (of_q != q.candidates().end() && of_q->token < candidate.token) ++of_q;
    const bool in_q = of_q != q.candidates().end() && of_q->token == candidate.token;
    const double residual = candidate.weight * p_scale - (in_q ? of_q->weight * q_scale : 0);
    if (residual > 0) visit(candidate.token, residual);
  }
}

}  // namespace

Distribution::Distribution(int64_t vocab) { candidates_.reserve(static_cast<size_t>(vocab)); }

void Distribution::SetPoint(int32_t token) {
  candidates_.assign(1, {token, 1.0f});
  mass_ = 1;
}

void Distribution::SumMass() {
  mass_ = 0;
  for (const Candidate& candidate : candidates_) mass_ += candidate.weight;
}

int32_t Draw(const Distribution& distribution, double uniform) {
  const double wanted = uniform * distribution.mass();
  double mass = 0;
  for (const Candidate& candidate : distribution.candidates()) {
    mass += candidate.weight;
    if (mass > wanted) return candidate.token;
  }
  return distribution.candidates().back().token;
}

double Probability(const Distribution& distribution, int32_t token) {
  const absl::Span<const Candidate> candidates = distribution.candidates();
  const auto found =
      std::lower_bound(candidates.begin(), candidates.end(), token,
                       [](const Candidate& c, int32_t wanted) { return c.token < wanted; });
  if (found == candidates.end() || found->token != token) return 0;
  return found->weight / distribution.mass();
}

int32_t DrawResidual(const Distribution& p, const Distribution& q, double uniform) {
  double total = 0;
  ForEachResidual(p, q, [&](int32_t, double residual) { total += residual; });
  // p and q differ by less than roundings.
  if (total == 0) return Draw(p, uniform);
  const double wanted = uniform * total;
  double mass = 0;
  int32_t chosen = -1;
  ForEachResidual(p, q, [&](int32_t token, double residual) {
    if (mass <= wanted) chosen = token;
    mass += residual;
  });
  return chosen;
}

}  // namespace dsv4
