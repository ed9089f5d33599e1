// SPDX-License-Identifier: Apache-2.0
// Phase of a step program: products of one row with an FP8 weight.
//
// A block has consecutive tiles. The warps that share a tile have parts of K and stream them of all
// their tiles through registers, first ones before x is there. Products of K slices are added in
// shared memory, in the order of inner_product.cuh.
#pragma once

#include "kernels/sm12x/bf16.cuh"
#include "kernels/sm12x/expert_streams.cuh"
#include "kernels/sm12x/quantized_rows.cuh"
#include "kernels/sm12x/step_program.h"
#include "kernels/sm12x/step_words.cuh"

namespace dsv4::sm12x {

// A warp's K slices [first, end) of tiles tile, tile + step, .. below count.
template <class KSlices, int kHeld>
struct TileStream {
  typename KSlices::Raw held[kHeld];
  typename KSlices::Cursor cursor;
  int first, end, step, count;
  int tile, load_tile, load_slice;

  template <class CursorOf>
  __device__ __forceinline__ TileStream(int from, int until, int begin, int by, int tiles,
                                        CursorOf&& cursor_of)
      : first(from),
        end(until),
        step(by),
        count(from < until ? tiles : 0),
        tile(begin),
        load_tile(begin),
        load_slice(from) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) Load(i, cursor_of);
  }
  template <class CursorOf>
  __device__ __forceinline__ void Load(int i, CursorOf&& cursor_of) {
    if (load_tile >= count) return;
    if (load_slice == first) cursor = cursor_of(load_tile);
    cursor.Load(load_slice, &held[i]);
    if (++load_slice == end) {
      load_slice = first;
      load_tile += step;
    }
  }
  // product(tile, slice, raw)
  template <class CursorOf, class Product>
  __device__ __forceinline__ void Use(CursorOf&& cursor_of, Product&& product) {
    int slice = first;
    while (tile < count) {
#pragma unroll
      for (int i = 0; i < kHeld; ++i) {
        if (tile < count) {
          product(tile, slice, held[i]);
          Load(i, cursor_of);
          if (++slice == end) {
            slice = first;
            tile += step;
          }
        }
      }
    }
  }
};

// The first tile of block `block` of `blocks`.
__device__ __forceinline__ int FirstTile(int tiles, int block, int blocks) {
  return static_cast<int>(int64_t{tiles} * block / blocks);
}

// Bytes of shared memory, behind the staged row, for the products of a phase.
constexpr int64_t LinearProductBytes(int64_t tiles, int64_t slices, int64_t blocks) {
  return (tiles + blocks - 1) / blocks * slices * kProductStride * int64_t{sizeof(float)};
}

// Quantises eight bf16 numbers of a row for all lanes, from `column` on, and stages them.
__device__ __forceinline__ QuantizedEight StageRounded(const float (&v)[8], bool active,
                                                       int64_t column, int64_t k,
                                                       std::byte* staged) {
  const QuantizedEight q = Quantized(v);
  if (active) {
    StageEight(q.low, q.high, column, staged);
    if (threadIdx.x % 16 == 0) staged[StagedScales(k) + column / kKSlice] = std::byte(q.scale);
  }
  return q;
}

// kGroups: output_groups, whose x is not quantised. begin() waits for predecessors, once in a
// launch, and returns the launch's words.
template <bool kGroups, class Begin>
__device__ __forceinline__ void RunLinear(const LinearPhase& l, std::byte* shared, Begin&& begin) {
  using KSlices = std::conditional_t<kGroups, Fp8UnpackedSlices, Fp8Slices>;
  constexpr int kWarps = kProgramThreads / 32;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first_tile = FirstTile(l.tiles, blockIdx.x, gridDim.x);
  const int count = FirstTile(l.tiles, blockIdx.x + 1, gridDim.x) - first_tile;
  const int slices = l.slices, split = warp & ((1 << l.shift) - 1);
  const int64_t k = int64_t{slices} * kKSlice;
  const auto cursor_of = [&](int tile) {
    return typename KSlices::Cursor(l.w, first_tile + tile, lane);
  };
  const int first = slices * split >> l.shift, end = slices * (split + 1) >> l.shift;
  TileStream<KSlices, 2> stream(first, end, warp >> l.shift, kWarps >> l.shift, count, cursor_of);
  const LaunchWords& words = begin();
  std::byte* const x = shared;
  auto* const products = reinterpret_cast<float*>(shared + (kGroups ? 0 : OneRowBytes(k)));
  if constexpr (!kGroups) {
    // A warp quantises what it multiplies, two K slices at a time; of warps with the same K slices
    // the first one does.
    const bool alone = l.shift == kProgramShift;
    for (int slice = first; slice < end && warp >> l.shift == 0; slice += 2) {
      const int64_t column = min(slice + lane / 16, end - 1) * kKSlice + lane % 16 * 8;
      uint4 found[1];
      AwaitWords(found, [&](int) { return words.At(l.x_words) + column / 2; });
      float v[8];
      UnpackBf16x8(found[0], v);
      const bool active = slice + lane / 16 < end;
      const QuantizedEight q = StageRounded(v, active, column, k, x);
      if (active && blockIdx.x == 0) StoreQuantized(q, column, k, l.quantised);
    }
    alone ? __syncwarp() : __syncthreads();
  }
  stream.Use(cursor_of, [&](int tile, int slice, const typename KSlices::Raw& raw) {
    float sum[4];
    if constexpr (kGroups) {
      const std::byte* const group = static_cast<const std::byte*>(l.x) +
                                     (first_tile + tile) / l.group_tiles * (k * kActBytes);
      uint32_t b[KSlices::kBWords];
      LoadActs<KSlices>(group + slice * KSlices::kSliceBytes, lane % 4, b);
      SliceProduct(raw.Unpacked(), b, sum);
    } else {
      const ReadyActs acts = LoadStaged(x + slice * kStagedSlice, lane % 4);
      const uint32_t scale = *reinterpret_cast<const uint8_t*>(x + StagedScales(k) + slice);
      SliceProduct<true>(raw.Unpacked(), acts, scale, sum);
    }
    if (lane % 4 == 0) {
      float* const to = products + (tile * slices + slice) * kProductStride + lane / 4;
      to[0] = sum[0];
      to[8] = sum[2];
    }
  });
  __syncthreads();
  for (int i = threadIdx.x; i < (count * kTileRows + 31) / 32 * 32; i += kProgramThreads) {
    const int tile = min(i / kTileRows, count - 1);
    const float* from = products + tile * slices * kProductStride + i % kTileRows;
    float sum = 0;
#pragma unroll 8
    for (int c = 0; c < slices; ++c) sum = __fadd_rn(sum, from[c * kProductStride]);
    const float next = __shfl_down_sync(0xffffffffu, sum, 1);
    if (i % 2 != 0 || i >= count * kTileRows) continue;
    const uint32_t pair = Bf16x2(sum, next);
    const int at = (first_tile * kTileRows + i) / 2;
    PublishWord(words.At(l.y_words) + at, pair);
    if (l.y != nullptr) static_cast<uint32_t*>(l.y)[at] = pair;
  }
  __syncthreads();
}

}  // namespace dsv4::sm12x
