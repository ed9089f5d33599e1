// SPDX-License-Identifier: Apache-2.0
// Radix selection: candidates are counted into bins by the leading bits of their weight, then those
// of the bin in which the list ends by the bits that follow, until its last weight is known. What
// lies behind that bin is dropped at once, which is usually nearly everything. The sums run in
// token order, so that they do not depend on the algorithm of a library.
#include "lib/sampling/keep_most_likely.h"

#include <algorithm>
#include <bit>

namespace dsv4 {
namespace {

// Orders as the weights do; equal weights (0 and -0, too) have equal keys.
uint32_t KeyOf(float weight) {
  const uint32_t bits = std::bit_cast<uint32_t>(weight + 0.0f);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}

// Keeps the shortest list of largest weights whose measures reach `wanted`.
template <class Measure>
void Keep(double wanted, Measure&& measure, std::vector<Candidate>* candidates,
          absl::Span<double> bins) {
  struct Digit {
    int shift, width;
  };
  constexpr Digit kDigits[] = {{20, 12}, {8, 12}, {0, 8}};
  uint64_t boundary = 0;  // leading bits of the last weight of the list
  double missing = wanted;
  for (const Digit digit : kDigits) {
    const uint64_t count = uint64_t{1} << digit.width;
    std::fill_n(bins.begin(), count, 0.0);
    for (const Candidate& candidate : *candidates) {
      const uint64_t key = KeyOf(candidate.weight);
      if (key >> (digit.shift + digit.width) == boundary)
        bins[key >> digit.shift & (count - 1)] += measure(candidate);
    }
    uint64_t bin = count;
    while (bin > 0 && bins[bin - 1] < missing) missing -= bins[--bin];
    if (bin == 0) return;  // all of them, and roundings left something missing
    boundary = boundary << digit.width | (bin - 1);
    std::erase_if(*candidates, [&](const Candidate& candidate) {
      return KeyOf(candidate.weight) >> digit.shift < boundary;
    });
  }
  // Those of the last weight, as long as something is missing.
  size_t kept = 0;
  for (const Candidate& candidate : *candidates) {
    if (KeyOf(candidate.weight) == boundary) {
      if (missing <= 0) continue;
      missing -= measure(candidate);
    }
    (*candidates)[kept++] = candidate;
  }
  candidates->resize(kept);
}

}  // namespace

void KeepLargest(int64_t count, std::vector<Candidate>* candidates, absl::Span<double> bins) {
  if (count >= static_cast<int64_t>(candidates->size())) return;
  const auto one = [](const Candidate&) { return 1.0; };
  Keep(static_cast<double>(count), one, candidates, bins);
}

void KeepMass(double mass, std::vector<Candidate>* candidates, absl::Span<double> bins) {
  const auto weight = [](const Candidate& candidate) { return double{candidate.weight}; };
  Keep(mass, weight, candidates, bins);
}

}  // namespace dsv4
