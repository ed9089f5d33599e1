// SPDX-License-Identifier: Apache-2.0
// Statistics of measured values.
#pragma once

#include <vector>

namespace bench {

// 0 for no values.
double Mean(const std::vector<double>& values);

// Standard deviation of a sample (division by n - 1), as llama-bench gives it; 0 for fewer than two
// values.
double SampleDeviation(const std::vector<double>& values);

// Standard deviation (division by n), as `vllm bench serve` gives it; 0 for no values.
double Deviation(const std::vector<double>& values);

// The value that `percent` of the values (0 to 100) lie below, interpolated linearly between the
// two nearest ranks; 0 for no values.
double Percentile(std::vector<double> values, double percent);

}  // namespace bench
