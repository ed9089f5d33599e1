// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/dsv4-bench/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace bench {
namespace {

double SumOfSquaredDeviations(const std::vector<double>& values) {
  const double mean = Mean(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return sum;
}

}  // namespace

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

double SampleDeviation(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  return std::sqrt(SumOfSquaredDeviations(values) / static_cast<double>(values.size() - 1));
}

double Deviation(const std::vector<double>& values) {
  if (values.empty()) return 0;
  return std::sqrt(SumOfSquaredDeviations(values) / static_cast<double>(values.size()));
}

double Percentile(std::vector<double> values, double percent) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double rank = percent / 100 * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(rank);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (values[above] - values[below]) * (rank - static_cast<double>(below));
}

}  // namespace bench
