// SPDX-License-Identifier: Apache-2.0
// How activations are rounded in front of a weight in a quantised block format: to integers of 8
// bits under one f32 scale for each 32 of a row (docs/adr/0035-numerics-of-gguf-files.md).
#pragma once

#include <cmath>
#include <cstdint>

namespace dsv4 {

inline constexpr int64_t kInt8Run = 32;

// The scale of a run whose largest magnitude is `largest`: code = x * inverse, rounded to the
// nearest integer (of two the even one), from -127 to 127; value = scale * code.
struct Int8Scale {
  float scale = 0, inverse = 0;

  explicit Int8Scale(float largest) {
    // Below, the inverse would not be finite: all codes are 0.
    if (!(largest >= 0x1p-100f)) return;
    scale = largest / 127;
    inverse = 127 / largest;
  }
};

}  // namespace dsv4
