// SPDX-License-Identifier: Apache-2.0
// block_products of many rows, for F32, F16 and BF16: by FMA, with the sums of block_products.h bit
// for bit. Tensor cores add products in an order of their own.
//
// A block has 64 rows of a weight and up to 64 rows of x. Each of its eight warps computes one of
// the eight sums of all 64 x 64 outputs: warp c multiplies chunk c of each segment, half a chunk at
// a time, which it widens to f32 in shared memory of its own, [element][row]. A lane has 16 x 8
// outputs, so that it multiplies 128 times for six reads. It reads half a chunk ahead.
//
// Roofline: n k FMAs a row, at the rate of the f32 pipes.
#pragma once

#include "kernels/sm12x/block_gemm.cuh"

namespace dsv4::sm12x {

inline constexpr int kPlainDepth = kChunk / 2;  // elements that are widened at a time
inline constexpr int kPlainGroups = kGemmTile / 16;
inline constexpr int64_t kPlainTileBytes = kPlainDepth * kGemmTile * int64_t{sizeof(float)};
constexpr int64_t PlainSharedBytes() {
  return kGemmWarps * std::max(2 * kPlainTileBytes, kGemmSumBytes);
}

// Where row `row` of element `element` lies: rows of both halves of 16 elements in different banks.
__device__ __forceinline__ int PlainIndex(int element, int row) {
  return element * kGemmTile + (row ^ (element / 8 * 16));
}

// Block (rows of x, a tile, a group of columns).
template <BlockType kType>
__global__ void __launch_bounds__(kGemmThreads, 1)
    block_plain_gemm_kernel(const __grid_constant__ BlockJob job) {
  BeginAfterPredecessors();
  const GemmTile tile = FindGemmTile(job);
  if (tile.part == nullptr) return;
  constexpr int kBytes = PlainChunk<kType>::kBytes / kChunk;  // of an element
  constexpr int kWords = 8 * kBytes / 16;                     // of eight elements
  std::byte* const shared = DynamicShared<std::byte>();
  const int lane = threadIdx.x % 32, c = threadIdx.x / 32;
  auto* const w = reinterpret_cast<float*>(shared + c * 2 * kPlainTileBytes);
  float* const x = w + kPlainDepth * kGemmTile;
  const int chunks = static_cast<int>(job.k / kChunk);
  // Of this warp: those of the last segment may not be there.
  const int halves = (chunks - c + kSegmentChunks - 1) / kSegmentChunks * 2;

  // A lane widens eight elements of each 16th row.
  const int eight = lane % 2;
  uint4 held_w[kPlainGroups][kWords], held_x[kPlainGroups];
  const auto read = [&](int half) {
    const int64_t at =
        (half / 2 * kSegmentChunks + c) * kChunk + half % 2 * kPlainDepth + eight * 8;
#pragma unroll
    for (int i = 0; i < kPlainGroups; ++i) {
      const int row = 16 * i + lane / 2;
      const uint8_t* const from = tile.Planes<kType>(job, row).at[0] + at * kBytes;
#pragma unroll
      for (int j = 0; j < kWords; ++j) held_w[i][j] = Load<uint4>(from + 16 * j);
      held_x[i] = *reinterpret_cast<const uint4*>(
          job.x + tile.Row(min(row, tile.count - 1), job.row_divisor) * job.row_bytes +
          blockIdx.z * job.group_bytes + at * 2);
    }
  };
  const auto widen = [&] {
#pragma unroll
    for (int i = 0; i < kPlainGroups; ++i) {
      PlainChunk<kType> chunk;
#pragma unroll
      for (int j = 0; j < kWords; ++j) chunk.words[j] = held_w[i][j];
      float ws[8];
      chunk.Eight(0, ws);
      const uint32_t pairs[4] = {held_x[i].x, held_x[i].y, held_x[i].z, held_x[i].w};
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const int at = PlainIndex(eight * 8 + e, 16 * i + lane / 2);
        w[at] = ws[e];
        x[at] = e % 2 == 0 ? Bf16Low(pairs[e / 2]) : Bf16High(pairs[e / 2]);
      }
    }
  };

  // Rows 16 i + 4 lw + e of the weight, rows 32 j + 4 lx + f of x.
  const int lw = lane % 4, lx = lane / 4;
  float sums[kPlainGroups][4][2][4] = {};
  if (halves > 0) read(0);
  for (int half = 0; half < halves; ++half) {
    widen();
    __syncwarp();
    if (half + 1 < halves) read(half + 1);
#pragma unroll
    for (int element = 0; element < kPlainDepth; ++element) {
      float ws[kPlainGroups][4], xs[2][4];
#pragma unroll
      for (int i = 0; i < kPlainGroups; ++i) {
        const float4 v = *reinterpret_cast<const float4*>(&w[PlainIndex(element, 16 * i + 4 * lw)]);
        ws[i][0] = v.x, ws[i][1] = v.y, ws[i][2] = v.z, ws[i][3] = v.w;
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float4 v = *reinterpret_cast<const float4*>(&x[PlainIndex(element, 32 * j + 4 * lx)]);
        xs[j][0] = v.x, xs[j][1] = v.y, xs[j][2] = v.z, xs[j][3] = v.w;
      }
#pragma unroll
      for (int i = 0; i < kPlainGroups; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
#pragma unroll
          for (int j = 0; j < 2; ++j) {
#pragma unroll
            for (int f = 0; f < 4; ++f) {
              sums[i][e][j][f] = __fmaf_rn(xs[j][f], ws[i][e], sums[i][e][j][f]);
            }
          }
        }
      }
    }
    __syncwarp();
  }

  // The sums of all chunks, half of the rows of x at a time.
#pragma unroll
  for (int j = 0; j < kGemmTile / kGemmSumRows; ++j) {
    if (j * kGemmSumRows >= tile.count) break;
    __syncthreads();
    auto* const mine = reinterpret_cast<float*>(shared + c * kGemmSumBytes);
#pragma unroll
    for (int i = 0; i < kPlainGroups; ++i) {
#pragma unroll
      for (int f = 0; f < 4; ++f) {
        *reinterpret_cast<float4*>(&mine[(4 * lx + f) * kGemmSumStride + 16 * i + 4 * lw]) =
            make_float4(sums[i][0][j][f], sums[i][1][j][f], sums[i][2][j][f], sums[i][3][j][f]);
      }
    }
    __syncthreads();
    StoreSums(tile, shared, j * kGemmSumRows);
  }
}

template <BlockType kType>
void LaunchPlainGemm(const LaunchContext& context, const BlockJob& job) {
  LaunchOverlapped(CudaStreamOf(context), GemmGrid(job), kGemmThreads, PlainSharedBytes(),
                   block_plain_gemm_kernel<kType>, job);
}

}  // namespace dsv4::sm12x
