// SPDX-License-Identifier: Apache-2.0
// The kernel of block_products.h for up to eight rows. A block has 16 rows of a weight at a time
// and up to eight rows of x, which it first rounds and keeps in shared memory. Eight lanes share a
// row of the weight: lane c reads chunk c of each segment.
//
// Roofline: the weight's bytes, once for eight rows of x; bound by memory up to four rows or so,
// then by dp4a and by reads of shared memory.
#pragma once

#include <algorithm>
#include <type_traits>

#include "kernels/sm12x/bf16.cuh"
#include "kernels/sm12x/block_chunk.cuh"
#include "kernels/sm12x/block_gemm.cuh"
#include "kernels/sm12x/block_plain_gemm.cuh"
#include "kernels/sm12x/block_products.h"
#include "kernels/sm12x/launch.h"
#include "kernels/sm12x/overlapped_launch.cuh"
#include "kernels/sm12x/rounded_rows.cuh"

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
  const RoundedChunk rounded = RoundChunk(from);
  const uint32_t(&words)[8] = rounded.codes;
  constexpr int kHalf = kSegmentChunks * 16;  // bytes between the halves
  *reinterpret_cast<uint4*>(codes) = make_uint4(words[0], words[1], words[2], words[3]);
  *reinterpret_cast<uint4*>(codes + kHalf) = make_uint4(words[4], words[5], words[6], words[7]);
  *scale = make_uint2(__float_as_uint(rounded.scale), rounded.sums);
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

// Whether a chunk is at most four registers.
constexpr bool FewWords(BlockType type) {
  return type == BlockType::kIq2Xxs || type == BlockType::kIq2Xs || type == BlockType::kIq3Xxs ||
         type == BlockType::kQ2K;
}

// The chunks of a row of the weight that a lane has read ahead.
template <BlockType kType, int kMaxRows>
struct ReadAhead {
  using C = std::conditional_t<IsQuantised(kType), Chunk<kType>, PlainChunk<kType>>;
  // For 16 KB or more on the way to a multiprocessor; fewer where sums and rows need registers.
  static constexpr int kCount = !IsQuantised(kType) ? (kType == BlockType::kF32 ? 1 : 2)
                                : FewWords(kType)   ? (kMaxRows > 1 ? 4 : 8)
                                                    : (kMaxRows > 1 ? 2 : 4);
  C chunk[kCount];

  __device__ __forceinline__ void Begin(const RowPlanes& planes, int segments, int c) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (i < segments) chunk[i].Read(planes, i, c);
    }
  }
};

// The sums of a lane's chunks of a row of the weight, for each of kRows rows of x.
template <BlockType kType, int kRows, class Ahead>
__device__ __forceinline__ void SumChunks(const RowPlanes& planes, int64_t k, int segments,
                                          const uint32_t* grid, const std::byte* staged, int count,
                                          Ahead& ahead, float (&sums)[kRows]) {
  const int c = threadIdx.x % kSegmentChunks;
  const int64_t row_bytes = StagedBytes(kType, k);
#pragma unroll
  for (int r = 0; r < kRows; ++r) sums[r] = 0;
  for (int first = 0; first < segments; first += Ahead::kCount) {
#pragma unroll
    for (int i = 0; i < Ahead::kCount; ++i) {
      const int segment = first + i;
      if (segment >= segments) break;
      if constexpr (IsQuantised(kType)) {
        using C = Chunk<kType>;
        const int64_t scales = StagedCodes(kType, k);
        uint32_t q[8];
        float s[C::kScales], m[C::kScales] = {};
        ahead.chunk[i].Unpack(grid, q);
        ahead.chunk[i].Scales(s, m);
        if (segment + Ahead::kCount < segments) {
          ahead.chunk[i].Read(planes, segment + Ahead::kCount, c);
        }
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
      } else {
        float w[4][8];
#pragma unroll
        for (int quarter = 0; quarter < 4; ++quarter) ahead.chunk[i].Eight(quarter, w[quarter]);
        if (segment + Ahead::kCount < segments) {
          ahead.chunk[i].Read(planes, segment + Ahead::kCount, c);
        }
#pragma unroll
        for (int quarter = 0; quarter < 4; ++quarter) {
#pragma unroll
          for (int r = 0; r < kRows; ++r) {
            float x[8];
            LoadBf16x8(reinterpret_cast<const uint16_t*>(staged + min(r, count - 1) * row_bytes +
                                                         segment * kSegment * 2 +
                                                         (quarter * kSegmentChunks + c) * 16),
                       x);
#pragma unroll
            for (int e = 0; e < 8; ++e) sums[r] = __fmaf_rn(x[e], w[quarter][e], sums[r]);
          }
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

// This lane's row of the weight in a tile.
struct TileRow {
  const BlockPart* part = nullptr;  // null: there is no such tile
  int64_t row = 0;
  RowPlanes planes;
};
template <BlockType kType>
__device__ __forceinline__ TileRow FindTile(const BlockJob& job, const BlockRows& rows,
                                            int64_t tile) {
  TileRow found;
  int which = 0;
#pragma unroll 1
  for (; which < job.part_count; ++which) {
    const int64_t n = job.group_rows > 0 ? job.group_rows : job.parts[which].n;
    const int64_t tiles = (n + kBlockTile - 1) / kBlockTile;
    if (tile < tiles) {
      found.part = &job.parts[which];
      break;
    }
    tile -= tiles;
  }
  if (found.part == nullptr) return found;
  const uint8_t* data = found.part->data;
  if (rows.expert != nullptr) {
    data = (which == 0 ? rows.expert->*job.matrix : rows.expert->w3).data;
  }
  found.row = rows.first_row + tile * kBlockTile + threadIdx.x / kSegmentChunks;
  found.planes = PlanesOfRow<kType>(data, found.part->n, job.k, min(found.row, found.part->n - 1));
  return found;
}

// The products of a tile. `tile` becomes tile `next`, whose first chunks are read.
template <BlockType kType, int kRows, class Ahead>
__device__ __forceinline__ void MultiplyTile(const BlockJob& job, const BlockRows& rows,
                                             int64_t next, int segments, const uint32_t* grid,
                                             const std::byte* staged, TileRow& tile, Ahead& ahead) {
  const int c = threadIdx.x % kSegmentChunks;
  float sums[kRows];
  SumChunks<kType, kRows>(tile.planes, job.k, segments, grid, staged, rows.count, ahead, sums);
  const BlockPart& part = *tile.part;
  const int64_t weight_row = tile.row;
  tile = FindTile<kType>(job, rows, next);
  if (tile.part != nullptr) ahead.Begin(tile.planes, segments, c);
  float mine = 0;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float sum = Butterfly(sums[r]);
    if (r == c) mine = sum;
  }
  if (c >= rows.count || weight_row >= part.n) return;
  const int64_t to =
      (rows.pairs != nullptr ? rows.pairs[c] : rows.first + c) * part.width + weight_row;
  if (part.bf16) {
    static_cast<uint16_t*>(part.y)[to] = static_cast<uint16_t>(Bf16x2(mine, 0));
  } else {
    static_cast<float*>(part.y)[to] = mine;
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

// Block (some rows or a group of an expert's, tiles, a group of columns), for up to kMaxRows rows.
template <BlockType kType, int kMaxRows>
__global__ void __launch_bounds__(kBlockThreads, 4)
    block_products_kernel(const __grid_constant__ BlockJob job, int pass_rows, int kind) {
  std::byte* const shared = DynamicShared<std::byte>();
  auto* const grid = reinterpret_cast<uint32_t*>(shared);
  constexpr int kGridWords = GridWordsOf(kType);
  std::byte* const staged = shared + kGridWords * 4;
  const int c = threadIdx.x % kSegmentChunks;
  // Of this lane: those of the last segment may not be there.
  const int segments = (static_cast<int>(job.k / kChunk) - c + kSegmentChunks - 1) / kSegmentChunks;
  BlockRows rows{};
  const std::byte* x = job.x;
  TileRow tile;
  ReadAhead<kType, kMaxRows> ahead;
  if (job.table == nullptr) {
    rows.first = int64_t{blockIdx.x} * pass_rows;
    rows.count = static_cast<int32_t>(min(int64_t{pass_rows}, job.rows - rows.first));
    rows.first_row = blockIdx.z * job.group_rows;
    x += blockIdx.z * job.group_bytes;
    tile = FindTile<kType>(job, rows, blockIdx.y);
    if (tile.part != nullptr) ahead.Begin(tile.planes, segments, c);  // which no kernel writes
  }
  BeginAfterPredecessors();
  if (job.table != nullptr) {
    if (static_cast<int32_t>(blockIdx.x) >= job.groups.counts[kind]) return;
    const RowGroup group = job.groups.Groups(kind)[blockIdx.x];
    rows.count = group.count;
    rows.pairs = job.groups.pair_of + group.first;
    rows.expert = job.table[group.expert];
    tile = FindTile<kType>(job, rows, blockIdx.y);
    if (tile.part != nullptr) ahead.Begin(tile.planes, segments, c);
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
    if (begin > 0) {
      __syncthreads();
      tile = FindTile<kType>(job, rows, blockIdx.y);
      if (tile.part != nullptr) ahead.Begin(tile.planes, segments, c);
    }
    for (int r = 0; r < rows.count; ++r) {
      const int64_t row = rows.pairs == nullptr ? rows.first + r : rows.pairs[r] / job.row_divisor;
      StageRow<kType>(x + row * job.row_bytes, job.k, staged + r * staged_bytes);
    }
    __syncthreads();
    for (int64_t next = blockIdx.y + gridDim.y; tile.part != nullptr; next += gridDim.y) {
      const auto multiply = [&]<int kRows>(Index<kRows>) {
        MultiplyTile<kType, kRows>(job, rows, next, segments, grid, staged, tile, ahead);
      };
      if (kMaxRows == 1 || rows.count == 1) {
        multiply(Index<1>());
      } else if constexpr (kMaxRows > 1) {
        if (rows.count == 2) {
          multiply(Index<2>());
        } else if (rows.count <= 4) {
          multiply(Index<4>());
        } else {
          multiply(Index<8>());
        }
      }
    }
  }
}

// Groups of `kind`, or all rows.
template <BlockType kType>
void LaunchFewRows(const LaunchContext& context, const BlockJob& job, int kind) {
  constexpr int64_t kResident = 8;  // blocks of a multiprocessor, before a block takes more tiles
  const bool one = job.rows == 1;   // of each expert, too
  const int pass_rows = one ? 1 : PassRows(kType, job.k);
  int64_t tiles = 0;
  for (int i = 0; i < job.part_count; ++i) {
    tiles += CeilDiv(job.group_rows > 0 ? job.group_rows : job.parts[static_cast<size_t>(i)].n,
                     int64_t{kBlockTile});
  }
  const int64_t passes = job.table != nullptr ? job.most_groups[static_cast<size_t>(kind)]
                                              : CeilDiv(int64_t{job.rows}, int64_t{pass_rows});
  const int64_t groups = job.group_rows > 0 ? CeilDiv(job.parts[0].n, job.group_rows) : int64_t{1};
  const int64_t most = std::max<int64_t>(
      kResident * context.multiprocessors / (job.table != nullptr ? 1 : groups), 1);
  const int64_t kept = std::min<int64_t>(pass_rows, job.table != nullptr ? kBlockRows : job.rows);
  const int64_t shared = GridWordsOf(kType) * int64_t{4} + kept * StagedBytes(kType, job.k);
  const auto kernel =
      one ? block_products_kernel<kType, 1> : block_products_kernel<kType, kBlockRows>;
  LaunchOverlapped(CudaStreamOf(context),
                   dim3(static_cast<unsigned>(passes), static_cast<unsigned>(std::min(tiles, most)),
                        static_cast<unsigned>(groups)),
                   kBlockThreads, shared, kernel, job, pass_rows, kind);
}

// Whether reading weights again for each eight rows takes less time than block_gemm.cuh.
inline bool FewRows(const LaunchContext& context, const BlockJob& job) {
  constexpr int32_t kFew = 16, kFewOfFewTiles = 32;
  int64_t rows = 0;
  for (int i = 0; i < job.part_count; ++i) rows += job.parts[static_cast<size_t>(i)].n;
  return job.rows <= (rows / kGemmTile < context.multiprocessors / 2 ? kFewOfFewTiles : kFew);
}

// Rows of x for which weights without quantisation are read again for each eight.
constexpr int32_t kFewPlainRows = 32;

template <BlockType kType>
void LaunchBlocksOf(const LaunchContext& context, const BlockJob& job) {
  if (job.table != nullptr) {
    LaunchFewRows<kType>(context, job, 0);
    if (job.most_groups[1] == 0) return;
    if constexpr (IsQuantised(kType)) {
      LaunchBlockGemm<kType>(context, job);
    } else {
      LaunchFewRows<kType>(context, job, 1);
    }
    return;
  }
  if constexpr (IsQuantised(kType)) {
    if (job.rounded != nullptr && !FewRows(context, job))
      return LaunchBlockGemm<kType>(context, job);
  } else {
    const dim3 grid = GemmGrid(job);
    if (job.rows > kFewPlainRows &&
        int64_t{grid.x} * grid.y * grid.z >= context.multiprocessors / 2) {
      return LaunchPlainGemm<kType>(context, job);
    }
  }
  LaunchFewRows<kType>(context, job, 0);
}

}  // namespace dsv4::sm12x
