// SPDX-License-Identifier: Apache-2.0
// What hc_pre and hc_head share: the products of a small f32 matrix with the flattened streams of a
// row, split over blocks, and the weighted sum of a row's streams.
//
// A product is cut into chunks of 64 columns of all streams, a block's, and these into parts of 32
// of a stream, a warp's, which the tensor cores add up; from there on all sums are TwoFloats:
// parts, then chunks, always in the same order, since an error of a mixing number moves all
// roundings of its row. Whatever else is in the call, a row's bits are the same. A block can make
// the streams itself, as hc_post does, since it has all of its columns.
#pragma once

#include <algorithm>

#include "kernels/op/hyper_connection.h"
#include "kernels/sm12x/arch/memory.cuh"
#include "kernels/sm12x/arch/mma.cuh"
#include "kernels/sm12x/bf16.cuh"
#include "kernels/sm12x/norm_row.cuh"
#include "kernels/sm12x/overlapped_launch.cuh"
#include "kernels/sm12x/two_float.cuh"

namespace dsv4::sm12x {

inline constexpr int kMixPart = 32;                     // columns
inline constexpr int kMixWarps = 8;                     // of a block
inline constexpr int kMixChunk = kMixWarps * kMixPart;  // columns
inline constexpr int kMixRows = 16;                     // that a block takes at a time
inline constexpr int kStreamCount = 4;
inline constexpr int kMixColumns = kMixChunk / kStreamCount;  // of a stream

// Sums of one row and chunk: of the outputs, then of the squares.
constexpr int MixSums(int outputs) { return outputs + 1; }

// Bytes of the chunks' sums of a row: [width / 256, outputs + 1] TwoFloats, a multiple of 16.
constexpr int64_t MixRowBytes(int64_t width, int outputs) {
  return width / kMixChunk * MixSums(outputs) * static_cast<int64_t>(sizeof(TwoFloat));
}

// Two f32 numbers as the sums of three bf16 numbers each, exactly but for the smallest.
__device__ __forceinline__ void SplitF32(float low, float high, uint32_t (&piece)[3]) {
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    piece[i] = Bf16x2(low, high);
    low -= Bf16Low(piece[i]);
    high -= Bf16High(piece[i]);
  }
}

// bf16(sum_i weight[i] x[i][c]) of two columns c, kCount <= 5, as the rounding of a TwoFloat. Plain
// f32 decides it unless its noise, kCount + 2 roundings of at most 2^-24 of the products' sizes,
// reaches over a rounding boundary.
template <int kCount>
__device__ __forceinline__ uint32_t WeightedSums(const float (&weight)[kCount],
                                                 const float (&x)[kCount][2]) {
  static_assert(kCount <= 5);
  float low[2], high[2];
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    float sum = __fmaf_rn(weight[0], x[0][c], 0.0f), size = fabsf(sum);
#pragma unroll
    for (int i = 1; i < kCount; ++i) {
      sum = __fmaf_rn(weight[i], x[i][c], sum);
      size = __fmaf_rn(fabsf(weight[i]), fabsf(x[i][c]), size);
    }
    low[c] = __fmaf_rn(size, -0x1p-21f, sum);
    high[c] = __fmaf_rn(size, 0x1p-21f, sum);
  }
  const uint32_t sums = Bf16x2(low[0], low[1]);
  if (sums == Bf16x2(high[0], high[1])) [[likely]]
    return sums;
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    TwoFloat sum = ExactProduct(weight[0], x[0][c]);
#pragma unroll
    for (int i = 1; i < kCount; ++i) sum.AddProduct(weight[i], x[i][c]);
    low[c] = sum.Rounded();
  }
  return Bf16x2(low[0], low[1]);
}

// The sum of the squares of eight bf16 numbers. From their f32 sum on, which none of them exceeds,
// what an addition rounds off is a difference.
__device__ __forceinline__ TwoFloat SumOfSquares(const uint32_t (&pairs)[4]) {
  float x[8], first = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[2 * i] = Bf16Low(pairs[i]);
    x[2 * i + 1] = Bf16High(pairs[i]);
  }
  first = SquaresOf(x, first);
  float sum = first, low = 0;
#pragma unroll
  for (const float v : x) {
    const float next = __fmaf_rn(v, v, sum);
    low = __fadd_rn(low, __fmaf_rn(v, v, __fsub_rn(sum, next)));
    sum = next;
  }
  return {__fsub_rn(sum, first), low};
}

// The rows of streams that a block of hc_pre makes itself, in shared memory: [row][stream][pair of
// columns], spread so that rows g and g + 1 lie in different banks.
inline constexpr int kMadePairs = kMixPart;
inline constexpr int kMadeStride = kStreamCount * kMadePairs + 16;

// made[r] = the columns of the block's chunk of row r < kMixRows of hc_post's out. Streams are read
// by the time that all threads are back, and out is not written.
__device__ __forceinline__ void MakeStreams(const HcPostParams& p, uint32_t* made) {
  constexpr int kRowsAtOnce = kMixWarps / kStreamCount, kTimes = 4, kTerms = 1 + kStreamCount;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int j = warp % kStreamCount, row_of_warp = warp / kStreamCount;
  const int64_t dim = p.hidden, column = static_cast<int64_t>(blockIdx.x) * kMixColumns + lane * 2;
#pragma unroll 1
  for (int begin = row_of_warp; begin < kMixRows; begin += kTimes * kRowsAtOnce) {
    uint32_t pair[kTimes][kTerms];
    float weight[kTimes][kTerms];
#pragma unroll
    for (int i = 0; i < kTimes; ++i) {
      const int64_t row = begin + i * kRowsAtOnce;
      if (row >= p.rows) continue;
      const auto load = [&](const void* from, int64_t at) {
        return *reinterpret_cast<const uint32_t*>(static_cast<const uint16_t*>(from) + at + column);
      };
      pair[i][0] = load(p.y, row * dim);
      weight[i][0] = p.post[row * kStreamCount + j];
#pragma unroll
      for (int h = 0; h < kStreamCount; ++h) {
        pair[i][1 + h] = load(p.streams, (row * kStreamCount + h) * dim);
        weight[i][1 + h] = p.comb[(row * kStreamCount + h) * kStreamCount + j];
      }
    }
#pragma unroll
    for (int i = 0; i < kTimes; ++i) {
      const int row = begin + i * kRowsAtOnce;
      if (row >= p.rows) continue;
      float x[kTerms][2];
#pragma unroll
      for (int h = 0; h < kTerms; ++h) {
        x[h][0] = Bf16Low(pair[i][h]);
        x[h][1] = Bf16High(pair[i][h]);
      }
      made[row * kMadeStride + j * kMadePairs + lane] = WeightedSums(weight[i], x);
    }
  }
}

// Block (chunk, some rows): chunk_sums[row][chunk][o] = fn[o, chunk] . streams[row, chunk], and the
// sum of squares. With kUpdates the streams are what `update` makes, of up to kMixRows rows; it may
// be in place. A warp holds its part of fn; rows are the M side of its products. Weights are split
// in three and activations in two, so that what the tensor cores cut off of a sum (arch/mma.cuh) is
// mostly nothing: products of 12 bits are summed up apart by their size.
template <int kOutputs, bool kUpdates = false>
__device__ __forceinline__ void MixChunk(const void* streams, const int32_t* row_of, int rows,
                                         int64_t dim, const float* fn, TwoFloat* chunk_sums,
                                         const HcPostParams& update = {}) {
  constexpr int kTiles = (kOutputs + 7) / 8, kStride = (MixSums(kOutputs) + 1) / 2 * 2;
  __shared__ __align__(16) TwoFloat parts[kMixWarps][kMixRows][kStride];
  constexpr int kStreamParts = kMixColumns / kMixPart;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int64_t width = kStreamCount * dim;
  const int64_t column = warp / kStreamParts * dim +
                         static_cast<int64_t>(blockIdx.x) * kMixColumns +
                         warp % kStreamParts * kMixPart + t * 8;

  float4 stored[kTiles][2] = {};
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    if (tile * 8 + g >= kOutputs) continue;
    const float* from = fn + (tile * 8 + g) * width + column;
    stored[tile][0] = *reinterpret_cast<const float4*>(from);
    stored[tile][1] = *reinterpret_cast<const float4*>(from + 4);
  }
  BeginAfterPredecessors();

  uint4 next[2];  // of rows g and g + 8: elements 8 t .. 8 t + 7 of the part
  const auto load = [&](int first) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = first + g + 8 * h;
      next[h] = make_uint4(0, 0, 0, 0);
      if (row >= rows) continue;
      const int64_t source = row_of == nullptr ? row : row_of[row];
      next[h] = *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(streams) +
                                                source * width + column);
    }
  };
  int first = blockIdx.y * kMixRows;
  if (!kUpdates) load(first);
  uint32_t weight[kTiles][4][3];
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float4 v = stored[tile][i];
      SplitF32(v.x, v.y, weight[tile][2 * i]);
      SplitF32(v.z, v.w, weight[tile][2 * i + 1]);
    }
  }

  if constexpr (kUpdates) {
    __shared__ __align__(16) uint32_t made[kMixRows * kMadeStride];
    MakeStreams(update, made);
    __syncthreads();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int64_t row = g + 8 * h;
      next[h] = make_uint4(0, 0, 0, 0);
      if (row >= rows) continue;
      next[h] =
          *reinterpret_cast<const uint4*>(made + row * kMadeStride + (warp * kMixPart + t * 8) / 2);
      *reinterpret_cast<uint4*>(static_cast<uint16_t*>(update.out) + row * width + column) =
          next[h];
    }
  }

  for (; first < rows; first += gridDim.y * kMixRows) {
    const uint32_t x[2][4] = {{next[0].x, next[0].y, next[0].z, next[0].w},
                              {next[1].x, next[1].y, next[1].z, next[1].w}};
    load(first + gridDim.y * kMixRows);
    float major[kTiles][4] = {}, middle[kTiles][4] = {}, minor[kTiles][4] = {};
#pragma unroll
    for (int s = 0; s < 4; s += 2) {
      const uint32_t a[4] = {x[0][s], x[1][s], x[0][s + 1], x[1][s + 1]};
      uint32_t upper[4], lower[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) upper[i] = UpperBits(a[i]), lower[i] = LowerBits(a[i]);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const uint32_t(&b0)[3] = weight[tile][s], (&b1)[3] = weight[tile][s + 1];
        MmaBf16(major[tile], upper[0], upper[1], upper[2], upper[3], b0[0], b1[0]);
        MmaBf16(middle[tile], lower[0], lower[1], lower[2], lower[3], b0[0], b1[0]);
        MmaBf16(minor[tile], a[0], a[1], a[2], a[3], b0[1], b1[1]);
        MmaBf16(minor[tile], a[0], a[1], a[2], a[3], b0[2], b1[2]);
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      TwoFloat squares = SumOfSquares(x[h]);
#pragma unroll
      for (int lanes = 1; lanes < 4; lanes *= 2) squares.Add(OfNeighbour(squares, lanes));
      TwoFloat* to = parts[warp][g + 8 * h];
      if (t == 0) to[kOutputs] = squares;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const int o = tile * 8 + 2 * t;
        if (o >= kOutputs) continue;
        *reinterpret_cast<float4*>(to + o) =
            make_float4(major[tile][2 * h], middle[tile][2 * h] + minor[tile][2 * h],
                        major[tile][2 * h + 1], middle[tile][2 * h + 1] + minor[tile][2 * h + 1]);
      }
    }
    __syncthreads();
    constexpr int kSums = MixSums(kOutputs);
    for (int i = threadIdx.x; i < min(rows - first, kMixRows) * kSums; i += kMixWarps * 32) {
      const int row = i / kSums, o = i % kSums;
      TwoFloat sum;
#pragma unroll
      for (int w = 0; w < kMixWarps; ++w) sum.Add(parts[w][row][o]);
      chunk_sums[(static_cast<int64_t>(first + row) * gridDim.x + blockIdx.x) * kSums + o] = sum;
    }
    __syncthreads();
  }
}

// A block for each chunk, and as many times as the device holds at once while there are rows for it.
inline dim3 MixGrid(const LaunchContext& context, int64_t dim, int rows) {
  constexpr int kBlocks = 2;  // of a multiprocessor
  const int chunks = static_cast<int>(dim / kMixColumns);
  const int most = std::max(context.multiprocessors * kBlocks / chunks, 1);
  return dim3(static_cast<unsigned>(chunks),
              static_cast<unsigned>(std::clamp((rows + kMixRows - 1) / kMixRows, 1, most)));
}

// Shared memory of a block that ends a row: its streams, the first of which becomes x, and the sums
// of its chunks.
constexpr int64_t RowSharedBytes(int64_t dim, int outputs) {
  return kStreamCount * dim * kActBytes + MixRowBytes(kStreamCount * dim, outputs);
}
// So that it stays below 99 KB.
inline constexpr int64_t kMostHidden = 8192;

// Copies `bytes`, a multiple of 16, to shared memory in the background, by `threads` threads.
__device__ __forceinline__ void CopyAllAsync(void* to_shared, const void* from, int64_t bytes,
                                             int threads) {
  for (int64_t i = threadIdx.x * 16; i < bytes; i += threads * 16) {
    CopyAsync16(static_cast<std::byte*>(to_shared) + i, static_cast<const std::byte*>(from) + i);
  }
}

// The chunks' sums of a row, [chunks][kOutputs + 1] in shared memory, to sums[kOutputs + 1]; by
// kThreads threads, eight of them a sum.
template <int kOutputs, int kThreads>
__device__ __forceinline__ void SumChunks(const TwoFloat* chunk_sums, int chunks, TwoFloat* sums) {
  constexpr int kSums = MixSums(kOutputs), kParts = 8;
  static_assert(kThreads >= kSums * kParts);
  const int o = threadIdx.x / kParts, part = threadIdx.x % kParts;
  if (threadIdx.x / 32 * 32 >= kSums * kParts) return;  // whole warps
  TwoFloat sum;
#pragma unroll 4
  for (int c = part; c < chunks; c += kParts) sum.Add(chunk_sums[c * kSums + min(o, kSums - 1)]);
#pragma unroll
  for (int lanes = 1; lanes < kParts; lanes *= 2) sum.Add(OfNeighbour(sum, lanes));
  if (part == 0 && o < kSums) sums[o] = sum;
}

// rsqrt(sum / count + eps).
__device__ __forceinline__ TwoFloat InverseRms(TwoFloat sum, int64_t count, float eps) {
  TwoFloat mean = Product(sum, Reciprocal({static_cast<float>(count), 0}));
  mean.Add(eps);
  return InverseSqrt(mean);
}

// A mixing number: its sum times rsqrt(mean square + eps).
__device__ __forceinline__ float MixingNumber(TwoFloat sum, TwoFloat squares, int64_t width,
                                              float eps) {
  return Product(sum, InverseRms(squares, width, eps)).Rounded();
}

// What sigmoid and softmax take.
__device__ __forceinline__ TwoFloat Logit(float mixing_number, float scale, float base) {
  TwoFloat logit = ExactProduct(mixing_number, scale);
  logit.Add(base);
  return logit;
}

// x[:] = bf16(sum_h pre[h] streams[h, :]) by kNormThreads threads, in place of the first stream;
// the norm's weights come in place of the second. Gives the sum of the squares of the thread's
// elements, which are all that it may read of x and the weights.
__device__ __forceinline__ float SumStreams(uint16_t* streams, const float* pre, int64_t dim,
                                            const uint16_t* norm) {
  float weight[kStreamCount];
#pragma unroll
  for (int h = 0; h < kStreamCount; ++h) weight[h] = pre[h];
  float squares = 0;
#pragma unroll 1
  for (int64_t column = threadIdx.x * 8; column < dim; column += kNormThreads * 8) {
    float v[kStreamCount][8];
#pragma unroll
    for (int h = 0; h < kStreamCount; ++h) LoadBf16x8(streams + h * dim + column, v[h]);
    uint32_t out[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float pair[kStreamCount][2];
#pragma unroll
      for (int h = 0; h < kStreamCount; ++h) pair[h][0] = v[h][2 * i], pair[h][1] = v[h][2 * i + 1];
      out[i] = WeightedSums(weight, pair);
      squares = SquaresOf({Bf16Low(out[i]), Bf16High(out[i])}, squares);
    }
    *reinterpret_cast<uint4*>(streams + column) = make_uint4(out[0], out[1], out[2], out[3]);
    CopyAsync16(streams + dim + column, norm + column);
  }
  CommitCopies();
  WaitForCopies<0>();
  return squares;
}

}  // namespace dsv4::sm12x
