// SPDX-License-Identifier: Apache-2.0
// block_products of many rows, for quantised formats: by int8 MMAs, with the sums of
// block_products.h bit for bit.
//
// A block has 64 rows of a weight and up to 64 rows of x. Two of its sixteen warps compute one of
// the eight sums of all 64 x 64 outputs: warps c and c + 8 multiply chunk c of each segment, by 32
// weight rows each. Sums of the MMAs are exact, then scaled and added by FMA. At the end the eight
// sums are added through shared memory.
// - x are records of rounded_rows.cuh, copied asynchronously one segment ahead by both warps of a
//   chunk. Other warps wait for each other only at the end.
// - A lane unpacks a chunk of the weight to shared memory, having read it a segment ahead.
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
inline constexpr int kGemmHalves = 2, kGemmWarpRows = kGemmTile / kGemmHalves;  // of the weight
inline constexpr int kGemmWarps = kSegmentChunks * kGemmHalves, kGemmThreads = kGemmWarps * 32;
inline constexpr int kGemmWeightTiles = kGemmWarpRows / 16;
inline constexpr int kGemmRowTiles = 2;  // of 8 rows of x, whose fragments a lane holds
inline constexpr int kGemmPasses = kGemmTile / 8 / kGemmRowTiles;

// The weight rows of a warp, unpacked.
template <BlockType kType>
struct GemmWeights {
  static constexpr int kScales = HasTwoScales(kType) ? 2 : 1;
  static constexpr int kMins = HasMin(kType) ? kScales : 1;
  alignas(16) uint32_t codes[2][kGemmWarpRows][4];  // [half of the chunk][row]
  float scales[kScales][kGemmWarpRows];
  float mins[kMins][kGemmWarpRows];
};
// Shared memory: the codebook, the list of rows, records [chunk][2][row], weights [warp].
inline constexpr int64_t kGemmRowListBytes = kGemmTile * int64_t{sizeof(int32_t)};
inline constexpr int64_t kGemmRecordBytes = kGemmTile * kRoundedBytes;
// Outputs of a warp for half of the rows of x, for the sum over warps: [row of x][row of the
// weight]. The stride keeps the lanes of a fragment in different banks.
inline constexpr int kGemmSumRows = kGemmTile / 2, kGemmSumStride = kGemmWarpRows + 4;
inline constexpr int64_t kGemmSumBytes = kGemmSumRows * kGemmSumStride * int64_t{sizeof(float)};
template <BlockType kType>
constexpr int64_t GemmSharedBytes() {
  return GridWordsOf(kType) * int64_t{4} + kGemmRowListBytes +
         std::max(kSegmentChunks * 2 * kGemmRecordBytes +
                      kGemmWarps * static_cast<int64_t>(sizeof(GemmWeights<kType>)),
                  kGemmWarps * kGemmSumBytes);
}

// Copies half of the records of a chunk.
__device__ __forceinline__ void CopyRecords(const std::byte* chunk, const int32_t* row_of, int half,
                                            std::byte* to) {
  constexpr int kParts = kRoundedBytes / 16, kCopies = kGemmTile * kParts / kGemmHalves;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kCopies / 32; ++i) {
    const int index = half * kCopies + lane + 32 * i, row = index / kParts, part = index % kParts;
    CopyAsync16(to + index * 16, chunk + int64_t{row_of[row]} * kRoundedBytes + part * 16);
  }
  CommitCopies();
}

// sums += the products of the warp's chunk. `tiles`: of 8 rows of x.
template <BlockType kType>
__device__ __forceinline__ void MultiplyChunk(
    const GemmWeights<kType>& weights, const std::byte* x, int tiles,
    float (&sums)[kGemmPasses][kGemmWeightTiles][kGemmRowTiles][4]) {
  constexpr int kScales = GemmWeights<kType>::kScales;
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int pass = 0; pass < kGemmPasses; ++pass) {
    if (pass * kGemmRowTiles >= tiles) break;  // no other branch: MMAs overlap
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
      const int row = 16 * i + g;
      const uint32_t a[4] = {weights.codes[0][row][t], weights.codes[0][row + 8][t],
                             weights.codes[1][row][t], weights.codes[1][row + 8][t]};
      float s[kScales][2], m[kScales][2];
#pragma unroll
      for (int h = 0; h < kScales; ++h) {
        s[h][0] = weights.scales[h][row];
        s[h][1] = weights.scales[h][row + 8];
        if constexpr (HasMin(kType)) {
          m[h][0] = weights.mins[h][row];
          m[h][1] = weights.mins[h][row + 8];
        }
      }
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
          MmaInt8K32(d, a, b[j][0], b[j][1], kBase);
          add(d, s[0]);
        } else {
          MmaInt8K16(d, a[0], a[1], b[j][0], kBase);
          add(d, s[0]);
          MmaInt8K16(d, a[2], a[3], b[j][1], kBase);
          add(d, s[1]);
        }
        if constexpr (HasMin(kType)) {
#pragma unroll
          for (int h = 0; h < kScales; ++h) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              sum[e] =
                  __fmaf_rn(less[j][e % 2][h], __fmul_rn(m[h][e / 2], scale[j][e % 2]), sum[e]);
            }
          }
        }
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
  auto* const row_of = reinterpret_cast<int32_t*>(shared + kGridWords * 4);
  std::byte* const staged = shared + kGridWords * 4 + kGemmRowListBytes;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int c = warp % kSegmentChunks, half = warp / kSegmentChunks;

  // The tile: `rows` rows of x, and rows of one part from first_row on.
  int64_t tile = blockIdx.y;
  const BlockPart* part = nullptr;
  int which = 0;
#pragma unroll 1
  for (; which < job.part_count; ++which) {
    const int64_t n = job.group_rows > 0 ? job.group_rows : job.parts[which].n;
    const int64_t tiles = (n + kGemmTile - 1) / kGemmTile;
    if (tile < tiles) {
      part = &job.parts[which];
      break;
    }
    tile -= tiles;
  }
  if (part == nullptr) return;
  const uint8_t* data = part->data;
  const int32_t* pairs = nullptr;
  int64_t first = int64_t{blockIdx.x} * kGemmTile;
  int count;
  if (job.table != nullptr) {
    if (static_cast<int32_t>(blockIdx.x) >= job.groups.counts[1]) return;
    const RowGroup group = job.groups.groups[1][blockIdx.x];
    const ExpertWeights* const expert = job.table[group.expert];
    data = (which == 0 ? expert->*job.matrix : expert->w3).data;
    pairs = job.groups.pair_of + group.first;
    count = group.count;
  } else {
    count = static_cast<int>(min(int64_t{kGemmTile}, job.rows - first));
  }
  if (threadIdx.x < kGemmTile) {
    const int row = min(static_cast<int>(threadIdx.x), count - 1);  // padding repeats the last
    row_of[threadIdx.x] =
        pairs != nullptr ? pairs[row] / job.row_divisor : static_cast<int32_t>(first) + row;
  }
  if constexpr (kGridWords > 0) {
    const auto* const from = reinterpret_cast<const uint4*>(GridOf<kType>());
    for (int i = threadIdx.x; i < kGridWords / 4; i += kGemmThreads) {
      reinterpret_cast<uint4*>(grid)[i] = from[i];
    }
  }
  __syncthreads();

  const int64_t weight_rows = job.group_rows > 0 ? job.group_rows : part->n;
  const int64_t in_group = tile * kGemmTile, first_row = blockIdx.z * job.group_rows + in_group;
  const int tiles = (count + 7) / 8;
  const int chunks = static_cast<int>(job.k / kChunk);
  // Of this warp: those of the last segment may not be there.
  const int segments = (chunks - c + kSegmentChunks - 1) / kSegmentChunks;
  float sums[kGemmPasses][kGemmWeightTiles][kGemmRowTiles][4] = {};
  std::byte* const x = staged + c * 2 * kGemmRecordBytes;
  auto& weights = *reinterpret_cast<GemmWeights<kType>*>(
      staged + kSegmentChunks * 2 * kGemmRecordBytes +
      warp * static_cast<int64_t>(sizeof(GemmWeights<kType>)));
  if (segments > 0) {
    const int64_t chunk_bytes = int64_t{job.rounded_rows} * kRoundedBytes;
    const std::byte* records =
        job.rounded + (blockIdx.z * job.group_bytes / (kChunk * 2) + c) * chunk_bytes;
    CopyRecords(records, row_of, half, x);
    const int64_t row = min(in_group + half * kGemmWarpRows + lane, weight_rows - 1);
    const RowPlanes planes =
        PlanesOfRow<kType>(data, part->n, job.k, blockIdx.z * job.group_rows + row);
    C held;
    held.template Read<false>(planes, 0, c);
    for (int segment = 0; segment < segments; ++segment) {
      uint32_t q[8];
      float s[C::kScales], m[C::kScales] = {};
      held.Unpack(grid, q);
      held.Scales(s, m);
      if (segment + 1 < segments) held.template Read<false>(planes, segment + 1, c);
      *reinterpret_cast<uint4*>(weights.codes[0][lane]) = make_uint4(q[0], q[1], q[2], q[3]);
      *reinterpret_cast<uint4*>(weights.codes[1][lane]) = make_uint4(q[4], q[5], q[6], q[7]);
#pragma unroll
      for (int h = 0; h < C::kScales; ++h) {
        weights.scales[h][lane] = s[h];
        if constexpr (HasMin(kType)) weights.mins[h][lane] = m[h];
      }
      WaitForCopies<0>();
      // Both warps' copies are there, and both have multiplied the records before them.
      WaitAtBarrier(1 + c, kGemmHalves * 32);
      if (segment + 1 < segments) {
        CopyRecords(records + (segment + 1) * kSegmentChunks * chunk_bytes, row_of, half,
                    x + (segment + 1) % 2 * kGemmRecordBytes);
      }
      MultiplyChunk<kType>(weights, x + segment % 2 * kGemmRecordBytes, tiles, sums);
      __syncwarp();
    }
  }

  // The sums of all chunks, half of the rows of x at a time.
#pragma unroll
  for (int part_of_x = 0; part_of_x < kGemmTile / kGemmSumRows; ++part_of_x) {
    constexpr int kTiles = kGemmSumRows / 8;
    const int first_x = part_of_x * kGemmSumRows;
    if (first_x >= count) break;
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
    // This warp's rows of x, of its half of the weight's rows.
    const int64_t row = in_group + half * kGemmWarpRows + lane;
    if (row >= weight_rows) continue;
    for (int x_row = c; x_row < min(count - first_x, kGemmSumRows); x_row += kSegmentChunks) {
      float s[kSegmentChunks];
#pragma unroll
      for (int w = 0; w < kSegmentChunks; ++w) {
        s[w] = reinterpret_cast<const float*>(
            staged + (half * kSegmentChunks + w) * kGemmSumBytes)[x_row * kGemmSumStride + lane];
      }
      const float even = __fadd_rn(__fadd_rn(s[0], s[4]), __fadd_rn(s[2], s[6]));
      const float odd = __fadd_rn(__fadd_rn(s[1], s[5]), __fadd_rn(s[3], s[7]));
      const float sum = __fadd_rn(even, odd);
      const int64_t y_row = pairs != nullptr ? pairs[first_x + x_row] : first + first_x + x_row;
      const int64_t to = y_row * part->width + first_row + half * kGemmWarpRows + lane;
      if (part->bf16) {
        static_cast<uint16_t*>(part->y)[to] = static_cast<uint16_t>(Bf16x2(sum, 0));
      } else {
        static_cast<float*>(part->y)[to] = sum;
      }
    }
  }
}

template <BlockType kType>
void LaunchBlockGemm(const LaunchContext& context, const BlockJob& job) {
  int64_t tiles = 0;
  for (int i = 0; i < job.part_count; ++i) {
    tiles += CeilDiv(job.group_rows > 0 ? job.group_rows : job.parts[static_cast<size_t>(i)].n,
                     int64_t{kGemmTile});
  }
  const int64_t rows =
      job.table != nullptr ? job.most_groups[1] : CeilDiv(int64_t{job.rows}, int64_t{kGemmTile});
  const int64_t groups = job.group_rows > 0 ? CeilDiv(job.parts[0].n, job.group_rows) : int64_t{1};
  LaunchOverlapped(CudaStreamOf(context),
                   dim3(static_cast<unsigned>(rows), static_cast<unsigned>(tiles),
                        static_cast<unsigned>(groups)),
                   kGemmThreads, GemmSharedBytes<kType>(), block_gemm_kernel<kType>, job);
}

}  // namespace dsv4::sm12x
