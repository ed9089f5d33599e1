// SPDX-License-Identifier: Apache-2.0
// The selection behind top-k and top-p: which candidates are the most likely ones. In linear time,
// in place and in token order, because sorting a vocabulary takes longer than all the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "lib/sampling/distribution.h"

namespace dsv4 {

// Bins that a selection needs as scratch.
inline constexpr size_t kSelectionBins = size_t{1} << 12;

// Keeps the `count` candidates of the largest weights (any finite ones), equals by the lowest
// token. `candidates` are in token order and stay so. REQUIRES: count > 0; bins.size() ==
// kSelectionBins.
void KeepLargest(int64_t count, std::vector<Candidate>* candidates, absl::Span<double> bins);

// Keeps the shortest list of candidates of the largest weights whose sum reaches `mass`, equals by
// the lowest token; all when none does. The same otherwise; weights are not negative and at least
// one candidate is kept.
void KeepMass(double mass, std::vector<Candidate>* candidates, absl::Span<double> bins);

}  // namespace dsv4
