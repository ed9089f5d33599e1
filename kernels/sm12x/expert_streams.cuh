// SPDX-License-Identifier: Apache-2.0
// For the experts of few rows (expert_few_rows.cuh, expert_one_row.cuh): how one row is staged in
// shared memory, and how a warp streams its K slices of tiles through registers and leaves their
// products there.
#pragma once

#include <type_traits>

#include "kernels/sm12x/arch/memory.cuh"
#include "kernels/sm12x/inner_product.cuh"
#include "kernels/sm12x/packed_layout.h"

namespace dsv4::sm12x {

// A single row is staged in shared memory as MMA operands: kReadyWords words for each eight
// elements, then the scales.
inline constexpr int kStagedEight = kReadyWords * 4, kStagedSlice = kKSlice / 8 * kStagedEight;
constexpr int64_t StagedScales(int64_t k) { return k / 8 * kStagedEight; }
constexpr int64_t OneRowBytes(int64_t k) { return (StagedScales(k) + k / kKSlice + 15) / 16 * 16; }
using StagedVector = std::conditional_t<kReadyWords == 4, uint4, uint2>;
union StagedEight {
  uint32_t words[kReadyWords];
  StagedVector vector;
};
// Stages eight codes from element `k` on.
__device__ __forceinline__ void StageEight(uint32_t low, uint32_t high, int64_t k,
                                           std::byte* staged) {
  StagedEight eight;
  MakeReady(low, high, eight.words);
  *reinterpret_cast<StagedVector*>(staged + k / 8 * kStagedEight) = eight.vector;
}
// Stages four codes from element `k` on, a multiple of four.
__device__ __forceinline__ void StageFour(uint32_t codes, int64_t k, std::byte* staged) {
  uint32_t words[kReadyWords];
  MakeReady(codes, 0, words);
  auto* const to = reinterpret_cast<uint32_t*>(staged + k / 4 * (kStagedEight / 2));
#pragma unroll
  for (int i = 0; i < kReadyWords / 2; ++i) to[i] = words[i];
}
// Stages a quantised row of `k` elements, by all `threads` threads of a block.
__device__ __forceinline__ void StageQuantized(const std::byte* row, int64_t k, int threads,
                                               std::byte* staged) {
  for (int i = threadIdx.x; i < k / 8; i += threads) {
    const uint2 codes = *reinterpret_cast<const uint2*>(row + i * 8);
    const int place = i % 16;  // QuantizedOffset: lane place / 4 of step place % 4
    StageEight(codes.x, codes.y, i / 16 * kKSlice + (place % 4 * 4 + place / 4) * 8, staged);
  }
  for (int i = threadIdx.x; i < k / kKSlice; i += threads) {
    staged[StagedScales(k) + i] = row[k + i];
  }
}
// A lane's part of a K slice.
__device__ __forceinline__ ReadyActs LoadStaged(const std::byte* slice, int t) {
  ReadyActs out;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    StagedEight eight;
    eight.vector = *reinterpret_cast<const StagedVector*>(slice + (4 * j + t) * kStagedEight);
#pragma unroll
    for (int i = 0; i < kReadyWords; ++i) out.words[j * kReadyWords + i] = eight.words[i];
  }
  return out;
}

// A lane's parts of kCount K slices of a staged row of `k` elements, from slice `first` on: in
// registers, where there are enough of them for the target's operands.
template <int kCount>
struct RowSlices {
  static constexpr bool kHeld = kReadyWords == 2;
  ReadyActs acts[kHeld ? kCount : 1];
  uint32_t scales[kCount];
  const std::byte* slices;
  __device__ __forceinline__ RowSlices(const std::byte* staged, int64_t k, int first)
      : slices(staged + first * kStagedSlice) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if constexpr (kHeld) acts[i] = Load(i);
      scales[i] = *reinterpret_cast<const uint8_t*>(staged + StagedScales(k) + first + i);
    }
  }
  __device__ __forceinline__ void Get(int i, ReadyActs* to, uint32_t* scale) const {
    if constexpr (kHeld) {
      *to = acts[i];
    } else {
      *to = Load(i);
    }
    *scale = scales[i];
  }

 private:
  __device__ __forceinline__ ReadyActs Load(int i) const {
    return LoadStaged(slices + i * kStagedSlice, static_cast<int>(threadIdx.x % 4));
  }
};

// A warp's stream of the K slices [first, end) of consecutive segments. A segment is a tile of an
// expert with its rows. kHeld K slices are in registers or being loaded at any time. kOneRow: all
// segments have one row.
template <class KSlices, int kMatrices, int kHeld, int kSlots, bool kOneRow>
struct FewStream {
  using Cursor = typename KSlices::Cursor;
  typename KSlices::Raw held[kHeld][kMatrices];
  Cursor ahead[kMatrices];
  int first, end, segments;      // to read
  int load_segment, load_slice;  // the next to load
  int place;                     // in `held`, of the next to use

  // Starts loading. cursor_of(segment, matrix) gives the weights of segments [0, count).
  template <class CursorOf>
  __device__ __forceinline__ void Begin(const SplitPlan& plan, int count, CursorOf&& cursor_of) {
    const int warp = threadIdx.x / 32;
    first = plan.First(warp);
    end = plan.First(warp + 1);
    segments = first < end ? count : 0;
    load_segment = -1;
    load_slice = end;
    place = 0;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) Load(i, cursor_of);
  }

  // Computes the products of segments [begin, until), which continue those of the last call.
  // - rows_of(segment): its number of rows.
  // - row_of(segment, row, slot): a row; its scales follow `scale_bytes` behind.
  // - Row slots are numbered from `slot` on. A product is
  //   products[((K slice * kMatrices + matrix) * kSlots + slot) * kProductStride + tile row].
  template <class CursorOf, class RowsOf, class RowOf>
  __device__ __forceinline__ void Use(int begin, int until, int slot, int64_t scale_bytes,
                                      float* products, CursorOf&& cursor_of, RowsOf&& rows_of,
                                      RowOf&& row_of) {
    if (segments == 0) return;
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    int segment = begin, slice = first;
    int rows = 0;
    const std::byte* row = nullptr;
    const auto enter = [&] {
      rows = kOneRow ? 1 : rows_of(segment);
      row = row_of(segment, min(g, rows - 1), slot);
    };
    if (segment < until) enter();
    while (segment < until) {
#pragma unroll
      for (int i = 0; i < kHeld; ++i) {
        if (i == place && segment < until) {
          ReadyActs acts;
          if constexpr (kOneRow) {
            acts = LoadStaged(row + slice * kStagedSlice, t);
          } else {
            uint32_t b[KSlices::kBWords];
            LoadActs<KSlices>(row + slice * KSlices::kSliceBytes, t, b);
            acts = Ready(b);
          }
          const uint32_t scale = *reinterpret_cast<const uint8_t*>(row + scale_bytes + slice);
#pragma unroll
          for (int m = 0; m < kMatrices; ++m) {
            float sum[4];
            SliceProduct<kOneRow>(held[i][m].Unpacked(), acts, scale, sum);
            float* to =
                products + ((slice * kMatrices + m) * kSlots + slot + 2 * t) * kProductStride + g;
            if (2 * t < rows) {
              to[0] = sum[0];
              to[8] = sum[2];
            }
            if (!kOneRow && 2 * t + 1 < rows) {
              to[kProductStride] = sum[1];
              to[kProductStride + 8] = sum[3];
            }
          }
          Load(i, cursor_of);
          place = (i + 1) % kHeld;
          if (++slice == end) {
            slice = first;
            slot += rows;
            if (++segment < until) enter();
          }
        }
      }
    }
  }

 private:
  template <class CursorOf>
  __device__ __forceinline__ void Load(int i, CursorOf&& cursor_of) {
    if (load_slice == end) {
      if (load_segment + 1 >= segments) return;
      ++load_segment;
      load_slice = first;
#pragma unroll
      for (int m = 0; m < kMatrices; ++m) ahead[m] = cursor_of(load_segment, m);
    }
#pragma unroll
    for (int m = 0; m < kMatrices; ++m) ahead[m].Load(load_slice, &held[i][m]);
    ++load_slice;
  }
};

// FewStream for MXFP4 experts of one row, where each warp has two K slices of a tile. Weights are
// read as `advance` says: each call gives the cursors of the next segment's matrices, whose K slice
// 0 is the warp's first.
template <int kMatrices, int kHeldSegments, int kSlots>
struct PairStream {
  Fp4Slices::Raw held[kHeldSegments][2][kMatrices];
  int left;  // segments to load

  template <class Advance>
  __device__ __forceinline__ void Begin(int count, Advance&& advance) {
    left = count;
#pragma unroll
    for (int i = 0; i < kHeldSegments; ++i) Load(i, advance);
  }
  template <class Advance>
  __device__ __forceinline__ void Load(int i, Advance&& advance) {
    if (left <= 0) return;
    --left;
    Fp4Slices::Cursor at[kMatrices];
    advance(at);
#pragma unroll
    for (int s = 0; s < 2; ++s) {
#pragma unroll
      for (int m = 0; m < kMatrices; ++m) at[m].Load(s, &held[i][s][m]);
    }
  }
  // products: of the warp's first K slice and matrix 0. acts_of(segment, s, acts, scale).
  template <class Advance, class ActsOf>
  __device__ __forceinline__ void Use(int count, float* products, Advance&& advance,
                                      ActsOf&& acts_of) {
    const int lane = threadIdx.x % 32;
    float* to = products + lane / 4;
#pragma unroll 1
    for (int segment = 0; segment < count; segment += kHeldSegments) {
#pragma unroll
      for (int i = 0; i < kHeldSegments; ++i) {
        if (segment + i < count) {
#pragma unroll
          for (int s = 0; s < 2; ++s) {
            ReadyActs acts;
            uint32_t scale;
            acts_of(segment + i, s, &acts, &scale);
#pragma unroll
            for (int m = 0; m < kMatrices; ++m) {
              float sum[4];
              SliceProduct<true>(held[i][s][m].Unpacked(), acts, scale, sum);
              if (lane % 4 == 0) {
                to[(s * kMatrices + m) * kSlots * kProductStride] = sum[0];
                to[(s * kMatrices + m) * kSlots * kProductStride + 8] = sum[2];
              }
            }
          }
          to += kProductStride;
          Load(i, advance);
        }
      }
    }
  }
};

// The sum of a row slot's products of one matrix.
template <int kMatrices, int kSlots>
__device__ __forceinline__ float FewSum(const float* products, int slices, int matrix, int slot,
                                        int tile_row) {
  const float* from = products + (matrix * kSlots + slot) * kProductStride + tile_row;
  float sum = 0;
#pragma unroll 8
  for (int c = 0; c < slices; ++c, from += kMatrices * kSlots * kProductStride) {
    sum = __fadd_rn(sum, *from);
  }
  return sum;
}

}  // namespace dsv4::sm12x
