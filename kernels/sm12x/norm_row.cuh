// SPDX-License-Identifier: Apache-2.0
// RMSNorm of one row by one block, and the row's quantised form: what rms_norm, hc_pre and hc_head
// end with. A thread holds eight neighbouring elements of each stripe of 8 * kNormThreads.
#pragma once

#include "kernels/sm12x/arch/threads.cuh"
#include "kernels/sm12x/bf16.cuh"
#include "kernels/sm12x/quantized_rows.cuh"
#include "kernels/sm12x/two_float.cuh"

namespace dsv4::sm12x {

inline constexpr int kNormThreads = 256;

// A barrier of the first kNormThreads threads of a block, which may have others.
__device__ __forceinline__ void SyncNormThreads() { WaitAtBarrier(1, kNormThreads); }

// The sum over the first kNormThreads threads, in each of them. `scratch` is shared memory of a
// TwoFloat per warp, free to be used again after the next barrier.
__device__ __forceinline__ TwoFloat BlockSum(TwoFloat value, TwoFloat* scratch) {
  value = WarpSum(value);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  SyncNormThreads();
  TwoFloat sum = scratch[0];
  for (int warp = 1; warp < kNormThreads / 32; ++warp) sum.Add(scratch[warp]);
  return sum;
}

// + the squares of eight bf16 numbers. Their products are exact in f32.
__device__ __forceinline__ void AddSquares(const float (&x)[8], TwoFloat* sum) {
#pragma unroll
  for (int i = 0; i < 8; ++i) sum->Add(__fmul_rn(x[i], x[i]));
}

// rsqrt(sum / count + eps).
__device__ __forceinline__ TwoFloat InverseRms(TwoFloat sum, int64_t count, float eps) {
  TwoFloat mean = Product(sum, Reciprocal({static_cast<float>(count), 0}));
  mean.Add(eps);
  return InverseSqrt(mean);
}

// Eight elements: x becomes bf16(x * inverse * weight).
__device__ __forceinline__ void Normalize(float (&x)[8], TwoFloat inverse, const uint16_t* weight) {
  float w[8];
  LoadBf16x8(weight, w);
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] = RoundBf16(Scaled(__fmul_rn(x[i], w[i]), inverse));
}

// RMSNorm of row `x` [dim] bf16 to `normed` (may be x) and `quantized`; both may be null. dim is a
// multiple of 8, of 128 with quantized. The first kNormThreads threads of a block call it, with the
// sum of the squares of their elements; `scratch` as for BlockSum. A thread reads its own elements
// of x and weight alone.
__device__ __forceinline__ void NormalizeRow(const uint16_t* x, TwoFloat sum, int64_t dim,
                                             const uint16_t* weight, float eps, uint16_t* normed,
                                             uint8_t* quantized, TwoFloat* scratch) {
  const TwoFloat inverse = InverseRms(BlockSum(sum, scratch), dim, eps);
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
