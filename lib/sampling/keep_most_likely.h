// SPDX-License-Identifier: Apache-2.0
// Selects the most likely candidates, for top-k and top-p. In linear time, in place and in token
// order: sorting a vocabulary would take longer than all other work of the sampler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "lib/sampling/distribution.h"

namespace dsv4 {

// The number of bins that a selection needs as scratch.
inline constexpr size_t kSelectionBins = size_t{1} << 12;

// Keeps the `count` candidates with the largest weights, ties by the lowest token. `candidates` are
// in token order and stay so. Weights are finite. REQUIRES: count > 0; bins.size() ==
// kSelectionBins.
void KeepLargest(int64_t count, std::vector<Candidate>* candidates, absl::Span<double> bins);

// Keeps the fewest candidates with the largest weights whose sum reaches `mass`, ties by the lowest
// token; all candidates if their sum does not reach it. Keeps at least one. Otherwise as
// KeepLargest. REQUIRES: no weight is negative.
void KeepMass(double mass, std::vector<Candidate>* candidates, absl::Span<double> bins);

}  // namespace dsv4
