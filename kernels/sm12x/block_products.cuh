// SPDX-License-Identifier: Apache-2.0
// The kernel of block_products.h. A block has 16 rows of a weight at a time and up to eight rows of
// x, which it first rounds and keeps in shared memory. Eight lanes share a row of the weight: lane
// c reads chunk c of each segment.
//
// Roofline: the weight's bytes, once for eight rows of x; bound by memory up to four rows or so,
// then by dp4a and by reads of shared memory.
#pragma once

#include <algorithm>

#include "kernels/sm12x/bf16.cuh"
#include "kernels/sm12x/block_chunk.cuh"
#include "kernels/sm12x/block_products.h"
#include "kernels/sm12x/launch.h"
#include "kernels/sm12x/overlapped_launch.cuh"

namespace dsv4::sm12x {

inline constexpr int kBlockThreads = 128;
inline constexpr int kBlockTile = kBlockThreads / kSegmentChunks;  // rows of the weight

// A row of x in shared memory. Int8: [segment][half][chunk][16] codes, then for each chunk its
// scale and the sums of the codes of its halves. bf16: [segment][quarter][chunk][8].
constexpr int64_t StagedCodes(BlockType type, int64_t k) {
  return RoundUp(k, int64_t{kSegment}) * (IsQuantised(type) ? 1 : 2);
}
constexpr int64_t StagedBytes(BlockType type, int64_t k) {
  return StagedCodes(type, k) +
         (IsQuantised(type) ? RoundUp(k, int64_t{kSegment}) / kChunk * int64_t{sizeof(uint2)} : 0);
}

// Rounds a chunk of bf16 to int8.
__device__ __forceinline__ void StageInt8(const uint4 (&from)[4], std::byte* codes, uint2* scale) {
  const uint32_t pairs[16] = {from[0].x, from[0].y, from[0].z, from[0].w, from[1].x, from[1].y,
                              from[1].z, from[1].w, from[2].x, from[2].y, from[2].z, from[2].w,
                              from[3].x, from[3].y, from[3].z, from[3].w};
  float largest = 0;
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    largest = fmaxf(largest, fmaxf(fabsf(Bf16Low(pairs[i])), fabsf(Bf16High(pairs[i]))));
  }
  // Int8Scale of lib/tensor/int8_run.h.
  const bool tiny = !(largest >= 0x1p-100f);
  const float inverse = tiny ? 0.0f : __fdiv_rn(127.0f, largest);
  uint32_t words[8];
  int sums[2] = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const auto code = [&](float x) {
      return static_cast<uint32_t>(__float2int_rn(__fmul_rn(x, inverse))) & 0xff;
    };
    words[i] = code(Bf16Low(pairs[2 * i])) | code(Bf16High(pairs[2 * i])) << 8 |
               code(Bf16Low(pairs[2 * i + 1])) << 16 | code(Bf16High(pairs[2 * i + 1])) << 24;
    sums[i / 4] = __dp4a(static_cast<int>(words[i]), 0x01010101, sums[i / 4]);
  }
  constexpr int kHalf = kSegmentChunks * 16;  // bytes between the halves
  *reinterpret_cast<uint4*>(codes) = make_uint4(words[0], words[1], words[2], words[3]);
  *reinterpret_cast<uint4*>(codes + kHalf) = make_uint4(words[4], words[5], words[6], words[7]);
  const float value = tiny ? 0.0f : __fdiv_rn(largest, 127.0f);
  *scale = make_uint2(__float_as_uint(value), (static_cast<uint32_t>(sums[0]) & 0xffff) |
                                                  static_cast<uint32_t>(sums[1]) << 16);
}

// Stages row x, by all threads of the block.
template <BlockType kType>
__device__ __forceinline__ void StageRow(const std::byte* x, int64_t k, std::byte* staged) {
  for (int chunk = threadIdx.x; chunk < k / kChunk; chunk += kBlockThreads) {
    const auto* const from = reinterpret_cast<const uint4*>(x + int64_t{chunk} * kChunk * 2);
    const uint4 values[4] = {from[0], from[1], from[2], from[3]};
    const int segment = chunk / kSegmentChunks, c = chunk % kSegmentChunks;
    if constexpr (IsQuantised(kType)) {
      StageInt8(values, staged + segment * kSegment + c * 16,
                reinterpret_cast<uint2*>(staged + StagedCodes(kType, k)) + chunk);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        *reinterpret_cast<uint4*>(staged + segment * kSegment * 2 + (i * kSegmentChunks + c) * 16) =
            values[i];
      }
    }
  }
}

// The sums of a lane's chunks of a row of the weight, for each of kRows rows of x.
template <BlockType kType, int kRows>
__device__ __forceinline__ void SumChunks(const RowPlanes& planes, int64_t k, const uint32_t* grid,
                                          const std::byte* staged, int count,
                                          float (&sums)[kRows]) {
  const int c = threadIdx.x % kSegmentChunks;
  const int chunks = static_cast<int>(k / kChunk);
  // Of this lane: those of the last segment may not be there.
  const int segments = (chunks - c + kSegmentChunks - 1) / kSegmentChunks;
  const int64_t row_bytes = StagedBytes(kType, k);
#pragma unroll
  for (int r = 0; r < kRows; ++r) sums[r] = 0;
  if constexpr (IsQuantised(kType)) {
    using C = Chunk<kType>;
    // Chunks in registers: fewer where sums and rows need them.
    constexpr int kAhead = C::kCodeWords > 4 || kRows > 2 ? 2 : 4;
    const int64_t scales = StagedCodes(kType, k);
    C held[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (i < segments) held[i].Read(planes, i, c);
    }
    for (int first = 0; first < segments; first += kAhead) {
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int segment = first + i;
        if (segment >= segments) break;
        uint32_t q[8];
        float s[C::kScales], m[C::kScales] = {};
        held[i].Unpack(grid, q);
        held[i].Scales(s, m);
        if (segment + kAhead < segments) held[i].Read(planes, segment + kAhead, c);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          // Rows that are not there repeat the last one.
          const std::byte* const row = staged + min(r, count - 1) * row_bytes;
          const auto* const codes =
              reinterpret_cast<const uint4*>(row + segment * kSegment + c * 16);
          const uint4 low = codes[0], high = codes[kSegmentChunks];
          const uint2 scale =
              reinterpret_cast<const uint2*>(row + scales)[segment * kSegmentChunks + c];
          const float x_scale = __uint_as_float(scale.x);
          const auto dot = [](const uint4& x, const uint32_t* w, int sum) {
            sum = __dp4a(static_cast<int>(x.x), static_cast<int>(w[0]), sum);
            sum = __dp4a(static_cast<int>(x.y), static_cast<int>(w[1]), sum);
            sum = __dp4a(static_cast<int>(x.z), static_cast<int>(w[2]), sum);
            return __dp4a(static_cast<int>(x.w), static_cast<int>(w[3]), sum);
          };
          const int sum_low = static_cast<int16_t>(scale.y & 0xffff);
          const int sum_high = static_cast<int>(scale.y) >> 16;
          if constexpr (C::kScales == 1) {
            sums[r] = __fmaf_rn(static_cast<float>(dot(high, q + 4, dot(low, q, 0))),
                                __fmul_rn(s[0], x_scale), sums[r]);
            if constexpr (HasMin(kType)) {
              sums[r] = __fmaf_rn(static_cast<float>(-(sum_low + sum_high)),
                                  __fmul_rn(m[0], x_scale), sums[r]);
            }
          } else {
            sums[r] =
                __fmaf_rn(static_cast<float>(dot(low, q, 0)), __fmul_rn(s[0], x_scale), sums[r]);
            sums[r] = __fmaf_rn(static_cast<float>(dot(high, q + 4, 0)), __fmul_rn(s[1], x_scale),
                                sums[r]);
            if constexpr (HasMin(kType)) {
              sums[r] = __fmaf_rn(static_cast<float>(-sum_low), __fmul_rn(m[0], x_scale), sums[r]);
              sums[r] = __fmaf_rn(static_cast<float>(-sum_high), __fmul_rn(m[1], x_scale), sums[r]);
            }
          }
        }
      }
    }
  } else {
    constexpr int kBytes = PlaneOf(kType, 0).bytes;  // of a chunk
    for (int segment = 0; segment < segments; ++segment) {
      const uint8_t* const from = planes.at[0] + (segment * kSegmentChunks + c) * kBytes;
#pragma unroll
      for (int quarter = 0; quarter < 4; ++quarter) {
        float w[8];
        LoadEight<kType>(from, quarter, w);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          float x[8];
          LoadBf16x8(reinterpret_cast<const uint16_t*>(staged + min(r, count - 1) * row_bytes +
                                                       segment * kSegment * 2 +
                                                       (quarter * kSegmentChunks + c) * 16),
                     x);
#pragma unroll
          for (int i = 0; i < 8; ++i) sums[r] = __fmaf_rn(x[i], w[i], sums[r]);
        }
      }
    }
  }
}

// The sum of eight neighbouring lanes' values, in each of them.
__device__ __forceinline__ float Butterfly(float value) {
#pragma unroll
  for (int with = 4; with > 0; with /= 2) {
    value = __fadd_rn(value, __shfl_xor_sync(0xffffffffu, value, with));
  }
  return value;
}

// The rows of x that a block multiplies: the row and expert pairs `pairs`, or rows from `first` on.
struct BlockRows {
  int32_t count;
  const int32_t* pairs;         // null: not of an expert
  const ExpertWeights* expert;  // of the pairs
  int64_t first;                // of x and y
  int64_t first_row;            // of the weight
};

template <BlockType kType, int kRows>
__device__ __forceinline__ void MultiplyTiles(const BlockJob& job, const BlockRows& rows,
                                              const uint32_t* grid, const std::byte* staged) {
  const int c = threadIdx.x % kSegmentChunks;
  for (int64_t index = blockIdx.y;; index += gridDim.y) {
    int64_t tile = index;
    const BlockPart* part = nullptr;
    int which = 0;
#pragma unroll 1
    for (; which < job.part_count; ++which) {
      const int64_t n = job.group_rows > 0 ? job.group_rows : job.parts[which].n;
      const int64_t tiles = (n + kBlockTile - 1) / kBlockTile;
      if (tile < tiles) {
        part = &job.parts[which];
        break;
      }
      tile -= tiles;
    }
    if (part == nullptr) return;
    const uint8_t* data = part->data;
    if (rows.expert != nullptr) {
      data = (which == 0 ? rows.expert->*job.matrix : rows.expert->w3).data;
    }
    const int64_t row = rows.first_row + tile * kBlockTile + threadIdx.x / kSegmentChunks;
    const RowPlanes planes = PlanesOfRow<kType>(data, part->n, job.k, min(row, part->n - 1));
    float sums[kRows];
    SumChunks<kType, kRows>(planes, job.k, grid, staged, rows.count, sums);
    float mine = 0;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float sum = Butterfly(sums[r]);
      if (r == c) mine = sum;
    }
    if (c >= rows.count || row >= part->n) continue;
    const int64_t to = (rows.pairs != nullptr ? rows.pairs[c] : rows.first + c) * part->width + row;
    if (part->bf16) {
      static_cast<uint16_t*>(part->y)[to] = static_cast<uint16_t>(Bf16x2(mine, 0));
    } else {
      static_cast<float*>(part->y)[to] = mine;
    }
  }
}

// Rows of x that a block keeps: at most kBlockRows, and as many as have room.
constexpr int64_t kBlockSharedBytes = 96 * 1024;
constexpr int PassRows(BlockType type, int64_t k) {
  const int64_t room = (kBlockSharedBytes - GridWordsOf(type) * int64_t{4}) / StagedBytes(type, k);
  int rows = kBlockRows;
  while (rows > 1 && rows > room) rows /= 2;
  return rows;
}

// Block (some rows or a group of an expert's, tiles, a group of columns).
template <BlockType kType>
__global__ void __launch_bounds__(kBlockThreads, 3)
    block_products_kernel(const __grid_constant__ BlockJob job, int pass_rows) {
  BeginAfterPredecessors();
  std::byte* const shared = DynamicShared<std::byte>();
  auto* const grid = reinterpret_cast<uint32_t*>(shared);
  constexpr int kGridWords = GridWordsOf(kType);
  std::byte* const staged = shared + kGridWords * 4;
  BlockRows rows{};
  const std::byte* x = job.x;
  if (job.table != nullptr) {
    if (static_cast<int32_t>(blockIdx.x) >= job.groups.counts[0]) return;
    const RowGroup group = job.groups.groups[0][blockIdx.x];
    rows.count = group.count;
    rows.pairs = job.groups.pair_of + group.first;
    rows.expert = job.table[group.expert];
  } else {
    rows.first = int64_t{blockIdx.x} * pass_rows;
    rows.count = static_cast<int32_t>(min(int64_t{pass_rows}, job.rows - rows.first));
    rows.first_row = blockIdx.z * job.group_rows;
    x += blockIdx.z * job.group_bytes;
  }
  if constexpr (kGridWords > 0) {
    const auto* const from = reinterpret_cast<const uint4*>(GridOf<kType>());
    for (int i = threadIdx.x; i < kGridWords / 4; i += kBlockThreads) {
      reinterpret_cast<uint4*>(grid)[i] = from[i];
    }
  }
  const int64_t staged_bytes = StagedBytes(kType, job.k);
  // An expert's group may have more rows than shared memory holds: then it takes several rounds.
  const BlockRows all = rows;
  for (int begin = 0; begin < all.count; begin += pass_rows) {
    rows.count = min(all.count - begin, pass_rows);
    if (all.pairs != nullptr) rows.pairs = all.pairs + begin;
    if (begin > 0) __syncthreads();
    for (int r = 0; r < rows.count; ++r) {
      const int64_t row = rows.pairs == nullptr ? rows.first + r : rows.pairs[r] / job.row_divisor;
      StageRow<kType>(x + row * job.row_bytes, job.k, staged + r * staged_bytes);
    }
    __syncthreads();
    if (rows.count == 1) {
      MultiplyTiles<kType, 1>(job, rows, grid, staged);
    } else if (rows.count == 2) {
      MultiplyTiles<kType, 2>(job, rows, grid, staged);
    } else if (rows.count <= 4) {
      MultiplyTiles<kType, 4>(job, rows, grid, staged);
    } else {
      MultiplyTiles<kType, 8>(job, rows, grid, staged);
    }
  }
}

template <BlockType kType>
void LaunchBlocksOf(const LaunchContext& context, const BlockJob& job) {
  constexpr int64_t kResident = 8;  // blocks of a multiprocessor, before a block takes more tiles
  const int pass_rows = PassRows(kType, job.k);
  int64_t tiles = 0;
  for (int i = 0; i < job.part_count; ++i) {
    tiles += CeilDiv(job.group_rows > 0 ? job.group_rows : job.parts[static_cast<size_t>(i)].n,
                     int64_t{kBlockTile});
  }
  const int64_t passes =
      job.table != nullptr ? job.most_groups : CeilDiv(int64_t{job.rows}, int64_t{pass_rows});
  const int64_t groups = job.group_rows > 0 ? CeilDiv(job.parts[0].n, job.group_rows) : int64_t{1};
  const int64_t most = std::max<int64_t>(
      kResident * context.multiprocessors / (job.table != nullptr ? 1 : groups), 1);
  const int64_t kept = std::min<int64_t>(pass_rows, job.table != nullptr ? kBlockRows : job.rows);
  const int64_t shared = GridWordsOf(kType) * int64_t{4} + kept * StagedBytes(kType, job.k);
  LaunchOverlapped(CudaStreamOf(context),
                   dim3(static_cast<unsigned>(passes), static_cast<unsigned>(std::min(tiles, most)),
                        static_cast<unsigned>(groups)),
                   kBlockThreads, shared, block_products_kernel<kType>, job, pass_rows);
}

}  // namespace dsv4::sm12x
