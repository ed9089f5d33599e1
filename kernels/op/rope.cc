// SPDX-License-Identifier: Apache-2.0
#include "kernels/op/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace dsv4 {

void FillRopeFrequencies(double theta, double factor, int64_t original_positions, double beta_fast,
                         double beta_slow, float out[kRopePairs]) {
  constexpr int64_t kDims = 2 * kRopePairs;
  // The dimension that turns `rotations` times over the original context.
  const auto dim_of = [&](double rotations) {
    return kDims *
           std::log(static_cast<double>(original_positions) / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(theta));
  };
  float low = 0, high = 0;
  if (factor > 0) {
    low = static_cast<float>(std::max(std::floor(dim_of(beta_fast)), 0.0));
    high = static_cast<float>(std::min(std::ceil(dim_of(beta_slow)), kDims - 1.0));
    if (low == high) high += 0.001f;
  }
  for (int64_t i = 0; i < kRopePairs; ++i) {
    // long double leaves room for the one correct rounding to f32.
    const float power = static_cast<float>(
        std::pow(static_cast<long double>(theta), static_cast<long double>(2 * i) / kDims));
    float frequency = 1.0f / power;
    if (factor > 0) {
      const float ramp = std::clamp((static_cast<float>(i) - low) / (high - low), 0.0f, 1.0f);
      frequency = frequency / static_cast<float>(factor) * ramp + frequency * (1.0f - ramp);
    }
    out[i] = frequency;
  }
}

absl::Status Validate(const RopeTableParams& p) {
  return Expect(p.rows >= 1 && p.positions != nullptr && p.out.window != nullptr &&
                    p.out.compressed != nullptr && p.out.ratio4 != nullptr &&
                    p.out.ratio128 != nullptr,
                "rope_table: no rows or a null pointer");
}

Cost CostOf(const RopeTableParams& p) {
  const int64_t values = int64_t{p.rows} * 4 * 2 * kRopePairs;
  return {.bytes = values * 4, .flops = values};
}

LaunchTensors TensorsOf(const RopeTableParams& p, Device&) {
  return {{},
          {{"window", OutputFormat::kF32, LaunchTensor::F32(p.out.window, p.rows, 2 * kRopePairs)},
           {"compressed", OutputFormat::kF32,
            LaunchTensor::F32(p.out.compressed, p.rows, 2 * kRopePairs)}}};
}

}  // namespace dsv4
