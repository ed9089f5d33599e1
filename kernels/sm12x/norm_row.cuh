// SPDX-License-Identifier: Apache-2.0
// RMSNorm of one row by one block, and the row's quantised form: the last part of rms_norm, hc_pre
// and hc_head. A thread holds eight neighbouring elements of each stripe of 8 * kNormThreads.
#pragma once

#include "kernels/sm12x/arch/threads.cuh"
#include "kernels/sm12x/bf16.cuh"
#include "kernels/sm12x/quantized_rows.cuh"

namespace dsv4::sm12x {

inline constexpr int kNormThreads = 256;

// A barrier of the first kNormThreads threads of a block; the block may have more threads.
__device__ __forceinline__ void SyncNormThreads() { WaitAtBarrier(1, kNormThreads); }

// The sum over the lanes of a warp, in every lane; always in the same order.
__device__ __forceinline__ float WarpSum(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value = __fadd_rn(value, __shfl_xor_sync(0xffffffffu, value, offset));
  }
  return value;
}

// Returns the sum over the first kNormThreads threads to each of them. `scratch` is shared memory
// of a float per warp. It can be reused after the next barrier.
__device__ __forceinline__ float BlockSum(float value, float* scratch) {
  value = WarpSum(value);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  SyncNormThreads();
  float sum = scratch[0];
#pragma unroll
  for (int warp = 1; warp < kNormThreads / 32; ++warp) sum = __fadd_rn(sum, scratch[warp]);
  return sum;
}

// The sum of squares.
template <int kCount>
__device__ __forceinline__ float SquaresOf(const float (&x)[kCount], float sum) {
#pragma unroll
  for (const float v : x) sum = __fmaf_rn(v, v, sum);
  return sum;
}

// rsqrt(sum / count + eps): rsqrtf, whose error is up to two ulps, and a Newton step.
__device__ __forceinline__ float InverseRms(float sum, int64_t count, float eps) {
  const float mean = __fadd_rn(__fdiv_rn(sum, static_cast<float>(count)), eps);
  const float y = rsqrtf(mean);
  return __fmaf_rn(__fmul_rn(0.5f, y), __fmaf_rn(-__fmul_rn(mean, y), y, 1.0f), y);
}

// Eight elements: x becomes bf16(x * inverse * weight).
__device__ __forceinline__ void Normalize(float (&x)[8], float inverse, const uint16_t* weight) {
  float w[8];
  LoadBf16x8(weight, w);
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] = RoundBf16(__fmul_rn(__fmul_rn(x[i], inverse), w[i]));
}

// RMSNorm of row `x` [dim] bf16 to `normed` (may be x) and `quantized`; both may be null.
// - The first kNormThreads threads of a block call it, each with the sum of the squares of its
//   elements. A thread reads only its own elements of x and weight.
// - dim is a multiple of 8, with quantized of 128. `scratch` as in BlockSum.
__device__ __forceinline__ void NormalizeRow(const uint16_t* x, float sum, int64_t dim,
                                             const uint16_t* weight, float eps, uint16_t* normed,
                                             uint8_t* quantized, float* scratch) {
  const float inverse = InverseRms(BlockSum(sum, scratch), dim, eps);
  const int64_t warp_column = threadIdx.x / 32 * 256, lane_column = threadIdx.x % 32 * 8;
  for (int64_t begin = warp_column; begin < dim; begin += kNormThreads * 8) {
    const int64_t column = begin + lane_column;
    const bool active = column < dim;
    float v[8] = {};
    if (active) {
      LoadBf16x8(x + column, v);
      Normalize(v, inverse, weight + column);
      if (normed != nullptr) StoreBf16x8(v, normed + column);
    }
    if (quantized != nullptr) StoreQuantized(v, active, column, dim, quantized);
  }
}

}  // namespace dsv4::sm12x
