// SPDX-License-Identifier: Apache-2.0
// block_products of many rows, for quantised formats: by int8 MMAs, with the sums of
// block_products.h bit for bit.
//
// A block has 64 rows of a weight and up to 64 rows of x. Each of its eight warps computes one of
// the eight sums of all 64 x 64 outputs: warp c multiplies chunk c of each segment. Sums of the
// MMAs are exact, then scaled and added by FMA. At the end the eight sums are added through shared
// memory.
// - A lane has 128 sums: so few warps, each with many MMAs on the way, read shared memory least.
// - x are records of rounded_rows.cuh, copied asynchronously one segment ahead, a row's of all
//   chunks side by side: rows of experts lie far from each other.
// - Each warp unpacks all chunks of eight weight rows to shared memory while it multiplies the
//   segment before. It reads them yet a segment earlier, eight neighbouring lanes a row, so that a
//   read of the warp touches few lines.
//
// Roofline: 2 n k operations a row, at the rate of int8 MMAs or of the f32 pipes: an output of a
// chunk takes one exact conversion (an addition), a product of scales and an FMA, twice where
// halves have their own scales, and two more operations for each minimum.
#pragma once

#include <algorithm>

#include "kernels/sm12x/arch/memory.cuh"
#include "kernels/sm12x/arch/mma_instructions.cuh"
#include "kernels/sm12x/arch/threads.cuh"
#include "kernels/sm12x/block_chunk.cuh"
#include "kernels/sm12x/block_products.h"
#include "kernels/sm12x/launch.h"
#include "kernels/sm12x/overlapped_launch.cuh"
#include "kernels/sm12x/rounded_rows.cuh"

namespace dsv4::sm12x {

inline constexpr int kGemmTile = kBlockGroupRows;  // rows of the weight, and of x
inline constexpr int kGemmWarps = kSegmentChunks, kGemmThreads = kGemmWarps * 32;
// Weight rows that a warp unpacks in each segment, four at a time.
inline constexpr int kGemmUnpackedRows = kGemmTile / kGemmWarps,
                     kGemmUnpacks = kGemmUnpackedRows / 4;
inline constexpr int kGemmWeightTiles = kGemmTile / 16;
inline constexpr int kGemmRowTiles = 2;  // of 8 rows of x, whose fragments a lane holds
inline constexpr int kGemmPasses = kGemmTile / 8 / kGemmRowTiles;

// A chunk of the weight rows, unpacked.
template <BlockType kType>
struct GemmWeights {
  static constexpr int kScales = HasTwoScales(kType) ? 2 : 1;
  alignas(16) uint32_t codes[2][kGemmTile][4];                 // [half of the chunk][row]
  float scales[kScales * (HasMin(kType) ? 2 : 1)][kGemmTile];  // then the minima
  uint32_t unused[4];  // the eight chunks of a row lie in different banks
};
// Shared memory: the codebook, records [chunk][2][row], weights [buffer][chunk].
inline constexpr int64_t kGemmRecordBytes = kGemmTile * kRoundedBytes;
// Of a chunk. The records of a row's eight chunks lie in different banks.
inline constexpr int64_t kGemmChunkBytes = 2 * kGemmRecordBytes + kRoundedBytes;
// Outputs of a warp for half of the rows of x, for the sum over warps: [row of x][row of the
// weight]. The stride keeps the lanes of a fragment in different banks.
inline constexpr int kGemmSumRows = kGemmTile / 2, kGemmSumStride = kGemmTile + 4;
inline constexpr int64_t kGemmSumBytes = kGemmSumRows * kGemmSumStride * int64_t{sizeof(float)};
template <BlockType kType>
constexpr int64_t GemmSharedBytes(int buffers) {
  return GridWordsOf(kType) * int64_t{4} +
         std::max(kSegmentChunks * (kGemmChunkBytes +
                                    buffers * static_cast<int64_t>(sizeof(GemmWeights<kType>))),
                  kGemmWarps * kGemmSumBytes);
}
// Buffers of unpacked segments: two unless the codebook leaves no room.
constexpr int64_t kMostGemmSharedBytes = 99 * 1024;  // of a block of an SM12x
template <BlockType kType>
constexpr int kGemmBuffers = GemmSharedBytes<kType>(2) <= kMostGemmSharedBytes ? 2 : 1;

// sums += the products of a chunk. `tiles`: of 8 rows of x; not used if kAll are there.
template <BlockType kType, bool kAll>
__device__ __forceinline__ void MultiplyChunk(
    const GemmWeights<kType>& weights, const std::byte* x, int tiles,
    float (&sums)[kGemmPasses][kGemmWeightTiles][kGemmRowTiles][4]) {
  constexpr int kScales = GemmWeights<kType>::kScales;
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  uint32_t a[kGemmWeightTiles][4];
  float s[kGemmWeightTiles][kScales][2], m[kGemmWeightTiles][kScales][2];
#pragma unroll
  for (int i = 0; i < kGemmWeightTiles; ++i) {
    const int row = 16 * i + g;
#pragma unroll
    for (int e = 0; e < 4; ++e) a[i][e] = weights.codes[e / 2][row + e % 2 * 8][t];
#pragma unroll
    for (int h = 0; h < kScales; ++h) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        s[i][h][e] = weights.scales[h][row + 8 * e];
        if constexpr (HasMin(kType)) m[i][h][e] = weights.scales[kScales + h][row + 8 * e];
      }
    }
  }
#pragma unroll
  for (int pass = 0; pass < kGemmPasses; ++pass) {
    if (!kAll && pass * kGemmRowTiles >= tiles) break;  // no other branch: MMAs overlap
    uint32_t b[kGemmRowTiles][2];
    float scale[kGemmRowTiles][2];
    float less[kGemmRowTiles][2][kScales];  // of minima: the codes' sums, negated
#pragma unroll
    for (int j = 0; j < kGemmRowTiles; ++j) {
      const int tile = pass * kGemmRowTiles + j;
      const auto* const codes =
          reinterpret_cast<const uint32_t*>(x + (tile * 8 + g) * kRoundedBytes);
      b[j][0] = codes[t];
      b[j][1] = codes[4 + t];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint2 tail =
            *reinterpret_cast<const uint2*>(x + (tile * 8 + 2 * t + i) * kRoundedBytes + kChunk);
        scale[j][i] = __uint_as_float(tail.x);
        if constexpr (HasMin(kType)) {
          const int low = static_cast<int16_t>(tail.y & 0xffff);
          const int high = static_cast<int>(tail.y) >> 16;
          if constexpr (kScales == 1) {
            less[j][i][0] = static_cast<float>(-(low + high));
          } else {
            less[j][i][0] = static_cast<float>(-low);
            less[j][i][1] = static_cast<float>(-high);
          }
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kGemmWeightTiles; ++i) {
#pragma unroll
      for (int j = 0; j < kGemmRowTiles; ++j) {
        float(&sum)[4] = sums[pass][i][j];
        // Integers below 2^22 under this f32's exponent: a subtraction converts them.
        constexpr int32_t kBase = 0x4b400000;
        const auto add = [&](const int32_t(&d)[4], const float(&weight)[2]) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const float dot = __fadd_rn(__int_as_float(d[e]), -12582912.0f);
            sum[e] = __fmaf_rn(dot, __fmul_rn(weight[e / 2], scale[j][e % 2]), sum[e]);
          }
        };
        int32_t d[4];
        if constexpr (kScales == 1) {
          MmaInt8K32(d, a[i], b[j][0], b[j][1], kBase);
          add(d, s[i][0]);
        } else {
          MmaInt8K16(d, a[i][0], a[i][1], b[j][0], kBase);
          add(d, s[i][0]);
          MmaInt8K16(d, a[i][2], a[i][3], b[j][1], kBase);
          add(d, s[i][1]);
        }
        if constexpr (HasMin(kType)) {
#pragma unroll
          for (int h = 0; h < kScales; ++h) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              sum[e] =
                  __fmaf_rn(less[j][e % 2][h], __fmul_rn(m[i][h][e / 2], scale[j][e % 2]), sum[e]);
            }
          }
        }
      }
    }
  }
}

// What a block computes: up to kGemmTile rows of x, by kGemmTile rows of a part.
struct GemmTile {
  const BlockPart* part;  // null: nothing
  const uint8_t* data;
  const int32_t* pairs;  // of an expert; else null
  int64_t first;         // of x and y, without pairs
  int count;
  int64_t first_row;  // of the part
  int64_t rows;       // of the part from there on; there may be more than kGemmTile

  // Row r of the tile in x, `divisor` of whose pairs have the same row.
  __device__ __forceinline__ int64_t Row(int r, int divisor) const {
    return pairs != nullptr ? pairs[r] / divisor : first + r;
  }
  // The planes of a row of the weight; those that are not there repeat the last one.
  template <BlockType kType>
  __device__ __forceinline__ RowPlanes Planes(const BlockJob& job, int row) const {
    return PlanesOfRow<kType>(data, part->n, job.k, first_row + min(int64_t{row}, rows - 1));
  }
};
__device__ __forceinline__ GemmTile FindGemmTile(const BlockJob& job) {
  GemmTile found{};
  int64_t tile = blockIdx.y;
  int which = 0;
#pragma unroll 1
  for (; which < job.part_count; ++which) {
    const int64_t n = job.group_rows > 0 ? job.group_rows : job.parts[which].n;
    const int64_t tiles = (n + kGemmTile - 1) / kGemmTile;
    if (tile < tiles) {
      found.part = &job.parts[which];
      found.rows = n - tile * kGemmTile;
      break;
    }
    tile -= tiles;
  }
  if (found.part == nullptr) return found;
  found.data = found.part->data;
  found.first = int64_t{blockIdx.x} * kGemmTile;
  found.first_row = blockIdx.z * job.group_rows + tile * kGemmTile;
  if (job.table == nullptr) {
    found.count = static_cast<int>(min(int64_t{kGemmTile}, job.rows - found.first));
    return found;
  }
  if (static_cast<int32_t>(blockIdx.x) >= job.groups.counts[1]) {
    found.part = nullptr;
    return found;
  }
  const RowGroup group = job.groups.groups[1][blockIdx.x];
  const ExpertWeights* const expert = job.table[group.expert];
  found.data = (which == 0 ? expert->*job.matrix : expert->w3).data;
  found.pairs = job.groups.pair_of + group.first;
  found.count = group.count;
  return found;
}

// Adds the eight sums of each output, for rows of x from first_x on, and stores them. `sums`: of
// each warp, [row of x][row of the weight].
__device__ __forceinline__ void StoreSums(const GemmTile& tile, const std::byte* sums,
                                          int first_x) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const BlockPart& part = *tile.part;
  for (int x = warp; x < min(tile.count - first_x, kGemmSumRows); x += kGemmWarps) {
    const int64_t y_row = tile.Row(first_x + x, 1);
#pragma unroll
    for (int column = lane; column < kGemmTile; column += 32) {
      if (column >= tile.rows) break;
      float s[kSegmentChunks];
#pragma unroll
      for (int w = 0; w < kSegmentChunks; ++w) {
        s[w] =
            reinterpret_cast<const float*>(sums + w * kGemmSumBytes)[x * kGemmSumStride + column];
      }
      const float even = __fadd_rn(__fadd_rn(s[0], s[4]), __fadd_rn(s[2], s[6]));
      const float odd = __fadd_rn(__fadd_rn(s[1], s[5]), __fadd_rn(s[3], s[7]));
      const float sum = __fadd_rn(even, odd);
      const int64_t to = y_row * part.width + tile.first_row + column;
      if (part.bf16) {
        static_cast<uint16_t*>(part.y)[to] = static_cast<uint16_t>(Bf16x2(sum, 0));
      } else {
        static_cast<float*>(part.y)[to] = sum;
      }
    }
  }
}

// Block (some rows or a group of an expert's, a tile, a group of columns).
template <BlockType kType>
__global__ void __launch_bounds__(kGemmThreads, 1)
    block_gemm_kernel(const __grid_constant__ BlockJob job) {
  BeginAfterPredecessors();
  using C = Chunk<kType>;
  std::byte* const shared = DynamicShared<std::byte>();
  auto* const grid = reinterpret_cast<uint32_t*>(shared);
  constexpr int kGridWords = GridWordsOf(kType);
  std::byte* const staged = shared + kGridWords * 4;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int c = warp;

  const GemmTile tile = FindGemmTile(job);
  if (tile.part == nullptr) return;
  if constexpr (kGridWords > 0) {
    const auto* const from = reinterpret_cast<const uint4*>(GridOf<kType>());
    for (int i = threadIdx.x; i < kGridWords / 4; i += kGemmThreads) {
      reinterpret_cast<uint4*>(grid)[i] = from[i];
    }
  }
  __syncthreads();

  const int tiles = (tile.count + 7) / 8;
  const int chunks = static_cast<int>(job.k / kChunk);
  // Of this warp: those of the last segment may not be there.
  const int segments = (chunks - c + kSegmentChunks - 1) / kSegmentChunks;
  float sums[kGemmPasses][kGemmWeightTiles][kGemmRowTiles][4] = {};
  const std::byte* const x = staged + c * kGemmChunkBytes;
  auto* const weights =
      reinterpret_cast<GemmWeights<kType>*>(staged + kSegmentChunks * kGemmChunkBytes);
  // Each warp copies eight rows of x, its first 24 lanes a row's records of a segment at a time.
  constexpr int kParts = kRoundedBytes / 16, kCopied = kGemmTile / kGemmWarps;
  const int copied = lane / kParts;  // the chunk
  const std::byte* const records =
      job.rounded + (blockIdx.z * job.group_bytes / (kChunk * 2)) * kRoundedBytes + lane * 16;
  std::byte* const copy_to = staged + min(copied, kSegmentChunks - 1) * kGemmChunkBytes +
                             warp * kCopied * kRoundedBytes + lane % kParts * 16;
  uint32_t copied_row;  // where the row of this lane's number begins
  {
    const int row =
        min(warp * kCopied + lane % kCopied, tile.count - 1);  // padding repeats the last
    copied_row = static_cast<uint32_t>(tile.Row(row, job.row_divisor) * job.rounded_row_bytes);
  }
  const auto copy = [&](int segment) {
    const std::byte* const from = records + segment * (kSegmentChunks * kRoundedBytes);
    std::byte* const to = copy_to + segment % 2 * kGemmRecordBytes;
    if (warp < tiles) {
      const bool there = copied < kSegmentChunks && segment * kSegmentChunks + copied < chunks;
#pragma unroll
      for (int i = 0; i < kCopied; ++i) {
        const uint32_t row = __shfl_sync(0xffffffffu, copied_row, i);
        if (there) CopyAsync16(to + i * kRoundedBytes, from + row);
      }
    }
    CommitCopies();
  };
  // What this lane unpacks: a chunk of these rows.
  const int unpacked = lane % kSegmentChunks;
  const auto unpacked_row = [&](int i) {
    return warp * kGemmUnpackedRows + 4 * i + lane / kSegmentChunks;
  };
  const int unpacked_segments = (chunks - unpacked + kSegmentChunks - 1) / kSegmentChunks;
  RowPlanes planes[kGemmUnpacks];
#pragma unroll
  for (int i = 0; i < kGemmUnpacks; ++i) {
    planes[i] = tile.Planes<kType>(job, unpacked_row(i));
  }
  C held[kGemmUnpacks];
  const auto read = [&](int segment) {
    if (segment >= unpacked_segments) return;
#pragma unroll
    for (int i = 0; i < kGemmUnpacks; ++i) {
      held[i].template Read<false>(planes[i], segment, unpacked);
    }
  };
  // Unpacks a segment that was read, and reads the next one.
  const auto unpack = [&](int segment) {
    if (segment >= unpacked_segments) return;
    auto& to = weights[segment % kGemmBuffers<kType> * kSegmentChunks + unpacked];
#pragma unroll
    for (int i = 0; i < kGemmUnpacks; ++i) {
      const int row = unpacked_row(i);
      uint32_t q[8];
      float s[C::kScales], m[C::kScales] = {};
      held[i].Unpack(grid, q);
      held[i].Scales(s, m);
      *reinterpret_cast<uint4*>(to.codes[0][row]) = make_uint4(q[0], q[1], q[2], q[3]);
      *reinterpret_cast<uint4*>(to.codes[1][row]) = make_uint4(q[4], q[5], q[6], q[7]);
#pragma unroll
      for (int h = 0; h < C::kScales; ++h) {
        to.scales[h][row] = s[h];
        if constexpr (HasMin(kType)) to.scales[C::kScales + h][row] = m[h];
      }
    }
    read(segment + 1);
  };
  copy(0);
  read(0);
  unpack(0);
  const int most_segments = (chunks + kSegmentChunks - 1) / kSegmentChunks;
  for (int segment = 0; segment < most_segments; ++segment) {
    WaitForCopies<0>();
    // All copies and unpacked rows are there, and those of the segment before have been multiplied.
    __syncthreads();
    if (segment + 1 < most_segments) copy(segment + 1);
    if constexpr (kGemmBuffers<kType> == 2) unpack(segment + 1);
    if (segment < segments) {
      const auto& chunk = weights[segment % kGemmBuffers<kType> * kSegmentChunks + c];
      const std::byte* const rows = x + segment % 2 * kGemmRecordBytes;
      if (tiles == kGemmTile / 8) {
        MultiplyChunk<kType, true>(chunk, rows, tiles, sums);
      } else {
        MultiplyChunk<kType, false>(chunk, rows, tiles, sums);
      }
    }
    if constexpr (kGemmBuffers<kType> == 1) {
      __syncthreads();
      unpack(segment + 1);
    }
  }

  // The sums of all chunks, half of the rows of x at a time.
#pragma unroll
  for (int part_of_x = 0; part_of_x < kGemmTile / kGemmSumRows; ++part_of_x) {
    constexpr int kTiles = kGemmSumRows / 8;
    const int first_x = part_of_x * kGemmSumRows;
    if (first_x >= tile.count) break;
    __syncthreads();
    auto* const mine = reinterpret_cast<float*>(staged + warp * kGemmSumBytes);
#pragma unroll
    for (int i = 0; i < kGemmWeightTiles; ++i) {
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        constexpr int kEach = kGemmRowTiles;
        const float(&sum)[4] =
            sums[(part_of_x * kTiles + j) / kEach][i][(part_of_x * kTiles + j) % kEach];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          mine[(8 * j + 2 * t + e % 2) * kGemmSumStride + 16 * i + g + e / 2 * 8] = sum[e];
        }
      }
    }
    __syncthreads();
    StoreSums(tile, staged, first_x);
  }
}

// Blocks of kGemmTile rows of x by kGemmTile rows of the weights.
inline dim3 GemmGrid(const BlockJob& job) {
  int64_t tiles = 0;
  for (int i = 0; i < job.part_count; ++i) {
    tiles += CeilDiv(job.group_rows > 0 ? job.group_rows : job.parts[static_cast<size_t>(i)].n,
                     int64_t{kGemmTile});
  }
  const int64_t rows =
      job.table != nullptr ? job.most_groups[1] : CeilDiv(int64_t{job.rows}, int64_t{kGemmTile});
  const int64_t groups = job.group_rows > 0 ? CeilDiv(job.parts[0].n, job.group_rows) : int64_t{1};
  return dim3(static_cast<unsigned>(rows), static_cast<unsigned>(tiles),
              static_cast<unsigned>(groups));
}

template <BlockType kType>
void LaunchBlockGemm(const LaunchContext& context, const BlockJob& job) {
  LaunchOverlapped(CudaStreamOf(context), GemmGrid(job), kGemmThreads,
                   GemmSharedBytes<kType>(kGemmBuffers<kType>), block_gemm_kernel<kType>, job);
}

}  // namespace dsv4::sm12x
