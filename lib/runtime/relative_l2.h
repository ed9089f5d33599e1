// SPDX-License-Identifier: Apache-2.0
// |actual - expected| / |expected| over all vectors that were added. For verification.
#pragma once

#include <cmath>
#include <vector>

namespace dsv4 {

class RelativeL2 {
 public:
  // REQUIRES: the same size.
  void Add(const std::vector<float>& actual, const std::vector<float>& expected) {
    for (size_t i = 0; i < expected.size(); ++i) {
      const double e = expected[i], d = actual[i] - e;
      difference_ += d * d;
      norm_ += e * e;
    }
  }
  double distance() const {
    if (difference_ == 0) return 0;
    const double distance = std::sqrt(difference_ / norm_);
    return std::isnan(distance) ? INFINITY : distance;
  }

 private:
  double difference_ = 0, norm_ = 0;
};

}  // namespace dsv4
