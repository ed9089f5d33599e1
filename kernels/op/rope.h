// SPDX-License-Identifier: Apache-2.0
// Contract of rope_table: cosines and sines of a step's positions (model.md 4.2). Kernels read them
// and compute no angles.
#pragma once

#include "kernels/op/launch_tensors.h"
#include "kernels/op/op.h"
#include "kernels/op/step_rows.h"

namespace dsv4 {

inline constexpr int64_t kRopePairs = 32;

struct RopeFrequencies {
  float window[kRopePairs];
  float compressed[kRopePairs];
};

// out[i] = fp32(1 / p_i) with p_i = fp32(theta^(2i/64)), correctly rounded. With factor > 0, the
// YaRN mix of model.md 4.2 in fp32.
void FillRopeFrequencies(double theta, double factor, int64_t original_positions, double beta_fast,
                         double beta_slow, float out[kRopePairs]);

struct RopeTableParams {
  static constexpr Op kOp = Op::kRopeTable;
  int32_t rows = 0;                    // T
  const int64_t* positions = nullptr;  // [T]
  RopeFrequencies frequencies{};
  RopeTables out{};  // angle = fp32(position * f); accurate cos and sin of it
};

absl::Status Validate(const RopeTableParams& params);
Cost CostOf(const RopeTableParams& params);
LaunchTensors TensorsOf(const RopeTableParams& params, Device& device);

}  // namespace dsv4
