// SPDX-License-Identifier: Apache-2.0
// The dot products of the attention operators on processors with a bf16 dot instruction, which has
// twice the throughput of f32 multiply-adds. On others, the operators use their own SIMD code.
#pragma once

#include <cstdint>

namespace dsv4 {

inline constexpr int64_t kPanelKeys = 32;  // index keys of a transposed panel, side by side

// The order of a sum depends on its two vectors alone, not on the counts.
struct AttentionDot {
  // scores[h * stride + n] = q[h] . rows[n] over 512 elements, h < heads <= 4, n < count. For rows
  // whose first 448 elements are of e4m3's precision the error is below 1e-8 of |q[h]| |rows[n]|.
  void (*rows)(const uint16_t* q, int64_t heads, const uint16_t* const* rows, int64_t count,
               double* scores, int64_t stride);
  // scores[g] = sum_h weights[h] * max(0, q[h] . key g) for the 32 keys of a panel: panel[d][g]
  // holds elements 2 d and 2 d + 1 of key g; q is [heads, 128].
  void (*panel)(const uint32_t* panel, const uint16_t* q, const float* weights, int64_t heads,
                float* scores);
};

// Null unless ActiveDotKernels() use such an instruction.
const AttentionDot* ActiveAttentionDot();

#if defined(__x86_64__)
extern const AttentionDot kAttentionDotAvx512Bf16;
#endif

}  // namespace dsv4
