// SPDX-License-Identifier: Apache-2.0
// Pearson's chi-squared test: how likely counts like these are if they follow these probabilities.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace dsv4::test {

// The chance that a chi-squared variable with `degrees` degrees of freedom exceeds `statistic`: the
// regularised upper incomplete gamma function Q(degrees / 2, statistic / 2), below its mean by the
// power series of 1 - Q, above by Legendre's continued fraction (Abramowitz and Stegun 6.5.29 and
// 6.5.31).
inline double ChiSquaredTail(double statistic, double degrees) {
  const double a = degrees / 2, x = statistic / 2;
  if (!(x > 0)) return 1;
  const double scale = std::exp(a * std::log(x) - x - std::lgamma(a));
  if (x < a + 1) {
    double term = 1 / a, sum = term;
    for (double n = a + 1; term > sum * 1e-16; ++n) sum += term *= x / n;
    return 1 - scale * sum;
  }
  // From the innermost fraction outwards; 500 are plenty for the degrees that tests have.
  double fraction = 0;
  for (int n = 500; n > 0; --n) fraction = n * (n - a) / (x + 2 * n + 1 - a - fraction);
  return scale / (x + 1 - a - fraction);
}

// For counts[i] of `probabilities[i]`, which sum to 1. Outcomes with less than 5 expected are taken
// together. 0 when an impossible one was counted.
inline double ChiSquaredPValue(const std::vector<int64_t>& counts,
                               const std::vector<double>& probabilities) {
  double draws = 0;
  for (const int64_t count : counts) draws += static_cast<double>(count);
  double statistic = 0, rare_count = 0, rare_expected = 0, outcomes = 0;
  const auto add = [&](double count, double expected) {
    statistic += (count - expected) * (count - expected) / expected;
    ++outcomes;
  };
  for (size_t i = 0; i < counts.size(); ++i) {
    const double count = static_cast<double>(counts[i]), expected = probabilities[i] * draws;
    if (expected == 0 && count > 0) return 0;
    if (expected >= 5) {
      add(count, expected);
    } else {
      rare_count += count;
      rare_expected += expected;
    }
  }
  if (rare_expected > 0) add(rare_count, rare_expected);
  return ChiSquaredTail(statistic, outcomes - 1);
}

}  // namespace dsv4::test
