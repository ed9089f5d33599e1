// SPDX-License-Identifier: Apache-2.0
// Compares whole tensors, so that a test has one assertion for each and its failure names the worst
// element:
//   REQUIRE(FarElements(got, want, {.relative = 1e-6}) == "");
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <sstream>
#include <string>

namespace dsv4::test {

// An element may be relative * |expected| + absolute away from the expected one. Equal infinities
// are no distance; NaN is far from all but NaN.
struct ElementBound {
  double relative = 0, absolute = 0;
};

// "" if all elements of `got` are within `bound` of those of `want`, else the worst one and how
// many are not.
template <class Got, class Want>
std::string FarElements(const Got& got, const Want& want, ElementBound bound = {}) {
  std::ostringstream text;
  if (got.size() != want.size()) {
    text << got.size() << " elements; expected " << want.size();
    return text.str();
  }
  size_t far = 0, worst = 0;
  double worst_excess = -1;
  for (size_t i = 0; i < static_cast<size_t>(want.size()); ++i) {
    const double a = static_cast<double>(got[i]), b = static_cast<double>(want[i]);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    const double allowed = bound.relative * std::abs(b) + bound.absolute;
    double excess = std::abs(a - b) - allowed;
    if (excess <= 0) continue;
    if (std::isnan(excess)) excess = std::numeric_limits<double>::infinity();
    ++far;
    if (excess <= worst_excess) continue;
    worst_excess = excess;
    worst = i;
  }
  if (far == 0) return "";
  text.precision(std::numeric_limits<double>::max_digits10);
  text << "element " << worst << " is " << +got[worst] << ", expected " << +want[worst] << "; "
       << far << " of " << want.size() << " are too far";
  return text.str();
}

// "" if all elements are finite, else the first one that is not.
template <class Got>
std::string NotFinite(const Got& got) {
  std::ostringstream text;
  for (size_t i = 0; i < static_cast<size_t>(got.size()); ++i) {
    if (std::isfinite(got[i])) continue;
    text << "element " << i << " of " << got.size() << " is " << got[i];
    return text.str();
  }
  return "";
}

// "" if all elements have the same bits, else the first one that differs.
template <class Got, class Want>
std::string DifferentBits(const Got& got, const Want& want) {
  static_assert(sizeof(got[0]) == sizeof(want[0]));
  std::ostringstream text;
  if (got.size() != want.size()) {
    text << got.size() << " elements; expected " << want.size();
    return text.str();
  }
  for (size_t i = 0; i < static_cast<size_t>(want.size()); ++i) {
    if (std::memcmp(&got[i], &want[i], sizeof(want[0])) == 0) continue;
    text << "element " << i << " of " << want.size() << " is " << +got[i] << ", expected "
         << +want[i];
    return text.str();
  }
  return "";
}

}  // namespace dsv4::test
