// SPDX-License-Identifier: Apache-2.0
// What hc_pre and hc_head share: the products of a small f32 matrix with the flattened streams of a
// row, split over blocks, and the weighted sum of a row's streams.
//
// A product is cut into chunks of 256 columns: 8 in a lane, then the lanes of a warp, then the chunks
// in their order, all in TwoFloats, since an error of a mixing number moves all roundings of its row.
// Whatever else is in the call, a row's bits are the same.
#pragma once

#include "kernels/sm12x/bf16.cuh"
#include "kernels/sm12x/norm_row.cuh"
#include "kernels/sm12x/two_float.cuh"

namespace dsv4::sm12x {

inline constexpr int kMixChunk = 256;   // columns
inline constexpr int kMixWarps = 8;     // of a block
inline constexpr int kMixRowTile = 16;  // rows that a block takes with fn in its registers
inline constexpr int kStreamCount = 4;

// Partial sums of one row and chunk: of the outputs, then of the squares.
constexpr int MixPartials(int outputs) { return outputs + 1; }

// Bytes of partial sums for `rows`: [rows, width / 256, outputs + 1] TwoFloats.
constexpr int64_t MixWorkspaceBytes(int64_t rows, int64_t width, int outputs) {
  return rows * (width / kMixChunk) * MixPartials(outputs) * static_cast<int64_t>(sizeof(TwoFloat));
}

// Block (chunk, row tile): partial[row, chunk, o] = fn[o, chunk] . streams[row, chunk]. Warp w has
// the outputs w, w + 8, ...; the last warp also the squares. kOutputs <= 8 * kPerWarp.
template <int kOutputs>
__device__ __forceinline__ void MixChunk(const uint16_t* streams, const int32_t* row_of, int rows,
                                         int64_t width, const float* fn, TwoFloat* partial) {
  constexpr int kPerWarp = (kOutputs + kMixWarps - 1) / kMixWarps;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kMixChunk + lane * 8;
  float weight[kPerWarp][8];
#pragma unroll
  for (int i = 0; i < kPerWarp; ++i) {
    const int o = warp + i * kMixWarps;
    if (o >= kOutputs) continue;
    const float4* from = reinterpret_cast<const float4*>(fn + o * width + column);
    const float4 a = from[0], b = from[1];
    weight[i][0] = a.x, weight[i][1] = a.y, weight[i][2] = a.z, weight[i][3] = a.w;
    weight[i][4] = b.x, weight[i][5] = b.y, weight[i][6] = b.z, weight[i][7] = b.w;
  }
  const int first = blockIdx.y * kMixRowTile;
  const int last = min(first + kMixRowTile, rows);
  for (int row = first; row < last; ++row) {
    const int64_t source = row_of == nullptr ? row : row_of[row];
    float x[8];
    LoadBf16x8(streams + source * width + column, x);
    TwoFloat* out = partial + (row * static_cast<int64_t>(gridDim.x) + blockIdx.x) *
                               MixPartials(kOutputs);
#pragma unroll
    for (int i = 0; i <= kPerWarp; ++i) {
      const bool squares = i == kPerWarp;
      const int o = squares ? kOutputs : warp + i * kMixWarps;
      if (squares ? warp != kMixWarps - 1 : o >= kOutputs) continue;
      TwoFloat sum;
#pragma unroll
      for (int c = 0; c < 8; ++c) sum.AddProduct(squares ? x[c] : weight[i][c], x[c]);
      sum = WarpSum(sum);
      if (lane == 0) out[o] = sum;
    }
  }
}

// m[o] of one row, o = threadIdx.x < kOutputs: the chunks' sum times rsqrt(mean square + eps).
// Returns it in thread o; the other threads get nothing.
template <int kOutputs>
__device__ __forceinline__ float MixedOutput(const TwoFloat* partial, int64_t chunks, float eps) {
  const int stride = MixPartials(kOutputs);
  TwoFloat sum, squares;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    sum.Add(partial[chunk * stride + threadIdx.x]);
    squares.Add(partial[chunk * stride + kOutputs]);
  }
  const TwoFloat inverse = InverseRms(squares, chunks * kMixChunk, eps);
  return Product(sum, inverse).Rounded();
}

// x[:] = bf16(sum_h pre[h] streams[h, :]) by the whole block.
__device__ __forceinline__ void SumStreams(const uint16_t* streams, const float* pre, int64_t dim,
                                           uint16_t* x) {
  for (int64_t column = threadIdx.x * 8; column < dim; column += blockDim.x * 8) {
    TwoFloat sum[8];
#pragma unroll
    for (int h = 0; h < kStreamCount; ++h) {
      float v[8];
      LoadBf16x8(streams + h * dim + column, v);
#pragma unroll
      for (int i = 0; i < 8; ++i) sum[i].AddProduct(pre[h], v[i]);
    }
    float out[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) out[i] = sum[i].Rounded();
    StoreBf16x8(out, x + column);
  }
}

__device__ __forceinline__ double Sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

}  // namespace dsv4::sm12x
