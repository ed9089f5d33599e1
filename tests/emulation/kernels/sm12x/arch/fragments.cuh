// SPDX-License-Identifier: Apache-2.0
// Stands for kernels/sm12x/arch/fragments.cuh.
#pragma once

#include "tests/emulation/device.h"

namespace dsv4::sm12x {

struct FourWords {
  uint32_t words[4];
};

template <bool kTransposed>
void Load8x8(uint32_t (&out)[4], const void* row) {
  const auto got = emulation::Together<FourWords>(
      0xffffffffu, kTransposed ? "ldmatrix.trans" : "ldmatrix", static_cast<const uint16_t*>(row),
      [](const uint16_t* const* rows, FourWords* of_lane) {
        for (int lane = 0; lane < 32; ++lane) {
          const int g = lane / 4, t = lane % 4;
          for (int m = 0; m < 4; ++m) {
            const uint16_t* const* of_matrix = rows + 8 * m;
            const uint32_t low = kTransposed ? of_matrix[2 * t][g] : of_matrix[g][2 * t];
            const uint32_t high = kTransposed ? of_matrix[2 * t + 1][g] : of_matrix[g][2 * t + 1];
            of_lane[lane].words[m] = low | high << 16;
          }
        }
      });
  std::copy_n(got.words, 4, out);
}

inline void LoadMatrices(uint32_t (&out)[4], const void* row) { Load8x8<false>(out, row); }
inline void LoadTransposedMatrices(uint32_t (&out)[4], const void* row) { Load8x8<true>(out, row); }

inline uint32_t TransposedMatrix(uint32_t elements) {
  return emulation::Together<uint32_t>(
      0xffffffffu, "movmatrix", elements, [](const uint32_t* given, uint32_t* got) {
        const auto element = [&](int row, int column) {
          return given[4 * row + column / 2] >> 16 * (column % 2) & 0xffff;
        };
        for (int lane = 0; lane < 32; ++lane) {
          const int g = lane / 4, t = lane % 4;
          got[lane] = element(2 * t, g) | element(2 * t + 1, g) << 16;
        }
      });
}

}  // namespace dsv4::sm12x
