// SPDX-License-Identifier: Apache-2.0
// The common part of hc_pre and hc_head: the products of a small f32 matrix with the flattened
// streams of a row, split over blocks, and the weighted sum of a row's streams.
//
// Order of the sums:
// - A block has a chunk: 64 columns of all streams. A warp has a part: 32 columns of one stream.
//   The tensor cores add up a part.
// - Two parts are added in f32, which loses next to nothing. All further sums are double-singles:
//   the sum of a chunk, which is rounded to f32, and the sum of all chunks.
// - The order does not depend on other rows of the call. Mixing numbers must not vary, because they
//   affect the rounding of every element of their row.
//
// A block can also compute the streams themselves, as hc_post does: it has all streams of its
// columns.
#pragma once

#include <algorithm>

#include "kernels/op/hyper_connection.h"
#include "kernels/sm12x/arch/memory.cuh"
#include "kernels/sm12x/arch/mma.cuh"
#include "kernels/sm12x/bf16.cuh"
#include "kernels/sm12x/double_single.cuh"
#include "kernels/sm12x/norm_row.cuh"
#include "kernels/sm12x/overlapped_launch.cuh"

namespace dsv4::sm12x {

inline constexpr int kMixPart = 32;                     // columns
inline constexpr int kMixWarps = 8;                     // of a block
inline constexpr int kMixChunk = kMixWarps * kMixPart;  // columns
inline constexpr int kMixRows = 16;                     // of a block at a time
inline constexpr int kStreamCount = 4;
inline constexpr int kMixes = 24;                             // of hc_pre: pre, post and comb
inline constexpr int kMixColumns = kMixChunk / kStreamCount;  // of a stream

// Sums of one row and chunk: the outputs, the sum of squares, and padding that keeps pairs of
// outputs aligned.
constexpr int MixSums(int outputs) { return outputs + 2; }

// Bytes of the chunks' sums of a row, [width / 256, MixSums(outputs)] floats: a multiple of 16.
constexpr int64_t MixRowBytes(int64_t width, int outputs) {
  return width / kMixChunk * MixSums(outputs) * static_cast<int64_t>(sizeof(float));
}

// Splits two f32 numbers into three bf16 numbers each, whose sum is exact except for numbers close
// to the smallest.
__device__ __forceinline__ void SplitF32(float low, float high, uint32_t (&piece)[3]) {
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    piece[i] = Bf16x2(low, high);
    low -= Bf16Low(piece[i]);
    high -= Bf16High(piece[i]);
  }
}

// bf16(sum_i weight[i] x[i][c]) of two columns c, kCount <= 5, rounded from a DoubleSingle. Plain
// f32 suffices unless its error bound (kCount + 2 roundings, each of at most 2^-24 of the sum of
// |weight x|) reaches across a rounding boundary.
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
    DoubleSingle sum = ExactProduct(weight[0], x[0][c]);
#pragma unroll
    for (int i = 1; i < kCount; ++i) sum.AddProduct(weight[i], x[i][c]);
    low[c] = sum.Rounded();
  }
  return Bf16x2(low[0], low[1]);
}

// A lane's elements of a part: eight columns of rows g and g + 8, whole and split into the upper
// and lower bits of the mantissa. With weights split in three and streams in two, products have 12
// bits and are accumulated apart by magnitude, so that the tensor cores' truncation of sums seldom
// loses anything.
struct PartOfStreams {
  uint32_t whole[2][4], upper[2][4], lower[2][4];

  __device__ __forceinline__ void Set(const uint4 (&x)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      whole[h][0] = x[h].x, whole[h][1] = x[h].y, whole[h][2] = x[h].z, whole[h][3] = x[h].w;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        upper[h][i] = UpperBits(whole[h][i]);
        lower[h][i] = LowerBits(whole[h][i]);
      }
    }
  }

  // The sum of the squares of row g + 8 h of the part, in all lanes of the row.
  __device__ __forceinline__ float Squares(int h) const {
    float x[8];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      x[2 * i] = Bf16Low(whole[h][i]);
      x[2 * i + 1] = Bf16High(whole[h][i]);
    }
    float sum = SquaresOf(x, 0.0f);
#pragma unroll
    for (int lanes = 1; lanes < 4; lanes *= 2) {
      sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, lanes));
    }
    return sum;
  }
};

// A lane's weights of a part for eight outputs: [s] has columns 2 s and 2 s + 1 of output g, split
// in three.
using PartOfWeights = uint32_t[4][3];

__device__ __forceinline__ void SplitWeights(const float4 (&stored)[2], PartOfWeights& to) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    SplitF32(stored[i].x, stored[i].y, to[2 * i]);
    SplitF32(stored[i].z, stored[i].w, to[2 * i + 1]);
  }
}

// The products of a part with eight outputs, as a fragment: rows g, g, g + 8, g + 8 and outputs
// 2 t, 2 t + 1, 2 t, 2 t + 1. `major` has the products of the upper bits, `rest` all others.
__device__ __forceinline__ void MultiplyPart(const PartOfStreams& x, const PartOfWeights& weight,
                                             float (&major)[4], float (&rest)[4]) {
  float middle[4] = {}, minor[4] = {};
#pragma unroll
  for (int i = 0; i < 4; ++i) major[i] = 0;
#pragma unroll
  for (int s = 0; s < 4; s += 2) {
    const uint32_t(&b0)[3] = weight[s], (&b1)[3] = weight[s + 1];
    const auto multiply = [&](float(&sum)[4], const uint32_t(&a)[2][4], int piece) {
      MmaBf16(sum, a[0][s], a[1][s], a[0][s + 1], a[1][s + 1], b0[piece], b1[piece]);
    };
    multiply(major, x.upper, 0);
    multiply(middle, x.lower, 0);
    multiply(minor, x.whole, 1);
    multiply(minor, x.whole, 2);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) rest[i] = __fadd_rn(middle[i], minor[i]);
}

// The updated streams that a block of hc_pre computes, in shared memory: [row][stream][pair of
// columns], padded so that rows g and g + 1 lie in different banks.
inline constexpr int kMadePairs = kMixPart;
inline constexpr int kMadeStride = kStreamCount * kMadePairs + 16;

// Sets made[r], for rows r < kMixRows, to the columns of the block's chunk of hc_post's output.
// Does not write p.out: it may be p.streams, which all threads have read when they have returned.
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

// The column of a lane's first element of part `part` of a chunk. Parts are ordered by half of the
// chunk's columns, then by stream.
__device__ __forceinline__ int64_t PartColumn(int part, int64_t chunk, int64_t dim) {
  return part % kStreamCount * dim + chunk * kMixColumns + part / kStreamCount * kMixPart +
         threadIdx.x % 4 * 8;
}

template <int kOutputs>
inline constexpr int kMixTiles = (kOutputs + 7) / 8;  // of eight outputs

// Loads a lane's weights of a part from `column` on, as stored.
template <int kOutputs>
__device__ __forceinline__ void LoadWeights(const float* fn, int64_t width, int64_t column,
                                            float4 (&stored)[kMixTiles<kOutputs>][2]) {
#pragma unroll
  for (int tile = 0; tile < kMixTiles<kOutputs>; ++tile) {
    const int output = tile * 8 + threadIdx.x % 32 / 4;
    stored[tile][0] = stored[tile][1] = make_float4(0, 0, 0, 0);
    if (output >= kOutputs) continue;
    const float* from = fn + output * width + column;
    stored[tile][0] = *reinterpret_cast<const float4*>(from);
    stored[tile][1] = *reinterpret_cast<const float4*>(from + 4);
  }
}

// Block (chunk, some rows): chunk_sums[row][chunk][o] = fn[o, chunk] . streams[row, chunk], and the
// sum of squares.
// - A warp holds its part of fn. Rows are the M side of its products.
// - With kUpdates, the streams are the output of `update`, which may be in place; rows <= kMixRows.
template <int kOutputs, bool kUpdates = false>
__device__ __forceinline__ void MixChunk(const void* streams, const int32_t* row_of, int rows,
                                         int64_t dim, const float* fn, float* chunk_sums,
                                         const HcPostParams& update = {}) {
  constexpr int kTiles = kMixTiles<kOutputs>, kStride = MixSums(kOutputs);
  __shared__ __align__(16) DoubleSingle parts[kMixWarps][kMixRows][kStride];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int64_t width = kStreamCount * dim, column = PartColumn(warp, blockIdx.x, dim);

  float4 stored[kTiles][2];
  LoadWeights<kOutputs>(fn, width, column, stored);
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
  PartOfWeights weight[kTiles];
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) SplitWeights(stored[tile], weight[tile]);

  if constexpr (kUpdates) {
    __shared__ __align__(16) uint32_t made[kMixRows * kMadeStride];
    MakeStreams(update, made);
    __syncthreads();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int64_t row = g + 8 * h;
      next[h] = make_uint4(0, 0, 0, 0);
      if (row >= rows) continue;
      next[h] = *reinterpret_cast<const uint4*>(made + row * kMadeStride +
                                                warp % kStreamCount * kMadePairs +
                                                (warp / kStreamCount * kMixPart + t * 8) / 2);
      *reinterpret_cast<uint4*>(static_cast<uint16_t*>(update.out) + row * width + column) =
          next[h];
    }
  }

  for (; first < rows; first += gridDim.y * kMixRows) {
    PartOfStreams x;
    x.Set(next);
    load(first + gridDim.y * kMixRows);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      float major[4], rest[4];
      MultiplyPart(x, weight[tile], major, rest);
      const int o = tile * 8 + 2 * t;
      if (o >= kOutputs) continue;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        *reinterpret_cast<float4*>(&parts[warp][g + 8 * h][o]) =
            make_float4(major[2 * h], rest[2 * h], major[2 * h + 1], rest[2 * h + 1]);
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float squares = x.Squares(h);
      if (t == 0) parts[warp][g + 8 * h][kOutputs] = {squares, 0};
    }
    __syncthreads();
    // Several rows at a time where a row has few sums.
    constexpr int kSums = kOutputs + 1, kLanes = kSums <= 8 ? 8 : 32;
    const int o = threadIdx.x % kLanes;
#pragma unroll
    for (int i = 0; i < kMixRows; i += kMixWarps * 32 / kLanes) {
      const int row = i + threadIdx.x / kLanes;
      if (o >= kSums || row >= min(rows - first, kMixRows)) continue;
      DoubleSingle sum;
#pragma unroll
      for (int w = 0; w < kMixWarps; w += 2) {
        const DoubleSingle a = parts[w][row][o], b = parts[w + 1][row][o];
        sum.Add(DoubleSingle{__fadd_rn(a.hi, b.hi), __fadd_rn(a.lo, b.lo)});
      }
      chunk_sums[(static_cast<int64_t>(first + row) * gridDim.x + blockIdx.x) * kStride + o] =
          sum.Rounded();
    }
    __syncthreads();
  }
}

// The order of a part's weights in shared memory: pairs of words that are one operand of an MMA.
constexpr int WordOfOperand(int i) { return i / 6 * 2 + i % 2; }
constexpr int PieceOfOperand(int i) { return i / 2 % 3; }

// As MixChunk, with the same sums in the same order, for many rows: a warp computes all parts of
// kMixRows rows, with the weights in shared memory, so that no sum crosses warps. It holds the next
// rows' parts in registers, which leaves room for one block of a multiprocessor.
template <int kOutputs>
__device__ __forceinline__ void MixManyRows(const void* streams, int rows, int64_t dim,
                                            const float* fn, float* chunk_sums) {
  constexpr int kTiles = kMixTiles<kOutputs>, kStride = MixSums(kOutputs), kVectors = 3;
  static_assert(kOutputs % 8 == 0);
  __shared__ uint4 weights[kMixWarps][kTiles][kVectors][32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int64_t width = kStreamCount * dim;
  float4 stored[kTiles][2];
  LoadWeights<kOutputs>(fn, width, PartColumn(warp, blockIdx.x, dim), stored);
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    PartOfWeights w;
    SplitWeights(stored[tile], w);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const auto word = [&](int i) {
        return w[WordOfOperand(4 * v + i)][PieceOfOperand(4 * v + i)];
      };
      weights[warp][tile][v][lane] = make_uint4(word(0), word(1), word(2), word(3));
    }
  }
  BeginAfterPredecessors();
  __syncthreads();

  const int step = static_cast<int>(gridDim.y) * kMixWarps * kMixRows;
  int first = (static_cast<int>(blockIdx.y) * kMixWarps + warp) * kMixRows;
  const uint4* const of_lane = &weights[0][0][0][lane];
  // Not known to nvcc, which would else copy a part's words to the registers of each MMA.
  const uint32_t zero = blockIdx.z;
  uint4 next[kMixWarps][2];  // of rows g and g + 8; of the last row in place of those beyond it
  const uint16_t* from[2];
  const auto enter = [&](int begin) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      from[h] = static_cast<const uint16_t*>(streams) + PartColumn(0, blockIdx.x, dim) +
                min(begin + g + 8 * h, rows - 1) * width;
    }
  };
  const auto load = [&](int part) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      next[part][h] =
          LoadWithLine(from[h] + part % kStreamCount * dim + part / kStreamCount * kMixPart);
    }
  };
  enter(first);
#pragma unroll
  for (int part = 0; part < kMixWarps; ++part) load(part);
#pragma unroll 1
  for (; first < rows; first += step) {
    DoubleSingle sums[kTiles][4], squares[2];
    enter(first + step);
#pragma unroll
    for (int pair = 0; pair < kMixWarps; pair += 2) {
      float hi[kTiles][4], lo[kTiles][4], square[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int part = pair + i;
#pragma unroll
        for (uint4& words : next[part]) {
          words.x |= zero, words.y |= zero, words.z |= zero, words.w |= zero;
        }
        PartOfStreams x;
        x.Set(next[part]);
        load(part);
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          PartOfWeights w;
#pragma unroll
          for (int v = 0; v < kVectors; ++v) {
            const uint4 four = of_lane[((part * kTiles + tile) * kVectors + v) * 32];
            const uint32_t words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
            for (int j = 0; j < 4; ++j) {
              w[WordOfOperand(4 * v + j)][PieceOfOperand(4 * v + j)] = words[j];
            }
          }
          float major[4], rest[4];
          MultiplyPart(x, w, major, rest);
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            hi[tile][j] = i == 0 ? major[j] : __fadd_rn(hi[tile][j], major[j]);
            lo[tile][j] = i == 0 ? rest[j] : __fadd_rn(lo[tile][j], rest[j]);
          }
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float of_part = x.Squares(h);
          square[h] = i == 0 ? of_part : __fadd_rn(square[h], of_part);
        }
      }
      // The first sums are themselves what adding them to zero would give.
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const DoubleSingle sum{hi[tile][j], lo[tile][j]};
          if (pair == 0) {
            sums[tile][j] = sum;
          } else {
            sums[tile][j].Add(sum);
          }
        }
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (pair == 0) {
          squares[h] = {square[h], 0};
        } else {
          squares[h].Add(square[h]);
        }
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = first + g + 8 * h;
      if (row >= rows) continue;
      float* const to = chunk_sums + (int64_t{row} * gridDim.x + blockIdx.x) * kStride;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        *reinterpret_cast<float2*>(to + tile * 8 + 2 * t) =
            make_float2(sums[tile][2 * h].Rounded(), sums[tile][2 * h + 1].Rounded());
      }
      if (t == 0) to[kOutputs] = squares[h].Rounded();
    }
  }
}

// One block for each chunk and `rows_of_block` rows, up to as many as are resident at once, of
// which a multiprocessor has `resident`.
inline dim3 MixGrid(const LaunchContext& context, int64_t dim, int rows,
                    int rows_of_block = kMixRows, int resident = 2) {
  const int chunks = static_cast<int>(dim / kMixColumns);
  const int most = std::max(context.multiprocessors * resident / chunks, 1);
  return dim3(
      static_cast<unsigned>(chunks),
      static_cast<unsigned>(std::clamp((rows + rows_of_block - 1) / rows_of_block, 1, most)));
}

// Shared memory of a block that completes a row: its streams and the sums of its chunks. x replaces
// the first stream.
constexpr int64_t RowSharedBytes(int64_t dim, int outputs) {
  return kStreamCount * dim * kActBytes + MixRowBytes(kStreamCount * dim, outputs);
}
// Keeps RowSharedBytes, with the weights of a norm, below 99 KB.
inline constexpr int64_t kMostHidden = 8192;

// Copies `bytes`, a multiple of 16, to shared memory asynchronously, by `threads` threads.
__device__ __forceinline__ void CopyAllAsync(void* to_shared, const void* from, int64_t bytes,
                                             int threads) {
  for (int64_t i = threadIdx.x * 16; i < bytes; i += threads * 16) {
    CopyAsync16(static_cast<std::byte*>(to_shared) + i, static_cast<const std::byte*>(from) + i);
  }
}

// Adds up a row's sums of chunks, in shared memory, to sums[kOutputs + 1]. kThreads threads call
// it; eight of them compute a sum.
template <int kOutputs, int kThreads>
__device__ __forceinline__ void SumChunks(const float* chunk_sums, int chunks, DoubleSingle* sums) {
  constexpr int kSums = kOutputs + 1, kStride = MixSums(kOutputs), kParts = 8;
  static_assert(kThreads >= kSums * kParts);
  const int o = threadIdx.x / kParts, part = threadIdx.x % kParts;
  if (threadIdx.x / 32 * 32 >= kSums * kParts) return;  // whole warps
  DoubleSingle sum;
#pragma unroll 4
  for (int c = part; c < chunks; c += kParts) sum.Add(chunk_sums[c * kStride + min(o, kSums - 1)]);
#pragma unroll
  for (int lanes = 1; lanes < kParts; lanes *= 2) sum.Add(OfNeighbour(sum, lanes));
  if (part == 0 && o < kSums) sums[o] = sum;
}

// rsqrt(sum / count + eps).
__device__ __forceinline__ DoubleSingle InverseRms(DoubleSingle sum, int64_t count, float eps) {
  DoubleSingle mean = Product(sum, Reciprocal({static_cast<float>(count), 0}));
  mean.Add(eps);
  return InverseSqrt(mean);
}

// A mixing number: its sum times rsqrt(mean square + eps).
__device__ __forceinline__ float MixingNumber(DoubleSingle sum, DoubleSingle squares, int64_t width,
                                              float eps) {
  return Product(sum, InverseRms(squares, width, eps)).Rounded();
}

// The argument of sigmoid and softmax.
__device__ __forceinline__ DoubleSingle Logit(float mixing_number, float scale, float base) {
  DoubleSingle logit = ExactProduct(mixing_number, scale);
  logit.Add(base);
  return logit;
}

// Computes x[:] = bf16(sum_h pre[h] streams[h, :]) by kNormThreads threads. x replaces the first
// stream, and the norm's weights replace the second unless `norm` is null. Returns the sum of the
// squares of the thread's elements. A thread may read only these elements of x and of the weights.
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
    if (norm != nullptr) CopyAsync16(streams + dim + column, norm + column);
  }
  if (norm != nullptr) {
    CommitCopies();
    WaitForCopies<0>();
  }
  return squares;
}

}  // namespace dsv4::sm12x
