// SPDX-License-Identifier: Apache-2.0
// The two halves of an expert, for few and for many rows: what expert_ffn.cu launches. A slot is a
// pair of a row and one of its K routed experts (slot = row K + i), or behind all pairs the shared
// expert's output of a row.
#pragma once

#include "kernels/op/moe.h"
#include "kernels/sm12x/arch/memory.cuh"
#include "kernels/sm12x/bf16.cuh"
#include "kernels/sm12x/expert_rows.cuh"
#include "kernels/sm12x/inner_product.cuh"
#include "kernels/sm12x/quantized_rows.cuh"
#include "kernels/sm12x/swiglu.cuh"

namespace dsv4::sm12x {

static_assert(kGroupThreads == kSplitThreads);

struct FfnWorkspace {
  RowGroups groups;
  uint16_t* hidden;    // [slots, I] bf16: clamped SwiGLU times routing weight
  uint8_t* quantised;  // [slots] quantised rows of I
  uint16_t* outputs;   // [slots, D] bf16
};

// The loader brings experts to the device in this format alone.
__device__ __forceinline__ Fp4Weight Mxfp4(const ExpertMatrix& m) {
  return {m.data, m.scale, m.n, m.k};
}

// The rows that a block serves.
struct FfnRows {
  int32_t expert;        // -1: the shared expert
  int count;             // rows
  const int32_t* pairs;  // [count] in shared memory, of a routed expert
  int first_row;         // of the shared expert's

  __device__ __forceinline__ int64_t Row(const ExpertFfnParams& p, int i) const {
    return expert < 0 ? first_row + i : pairs[i] / p.experts_per_token;
  }
  __device__ __forceinline__ int64_t Slot(const ExpertFfnParams& p, int i) const {
    return expert < 0 ? int64_t{p.rows} * p.experts_per_token + first_row + i : pairs[i];
  }
  __device__ __forceinline__ float Weight(const ExpertFfnParams& p, int i) const {
    return expert < 0 ? 1.0f : p.weights[pairs[i]];
  }
};

__device__ __forceinline__ const std::byte* InputRow(const ExpertFfnParams& p, int64_t row) {
  return static_cast<const std::byte*>(p.x) + row * QuantizedRowBytes(p.hidden);
}

__device__ __forceinline__ void StoreBf16(uint16_t* to, float value) {
  *to = static_cast<uint16_t>(Bf16x2(value, 0));
}

__device__ __forceinline__ void StoreHidden(const ExpertFfnParams& p, const FfnWorkspace& work,
                                            const FfnRows& rows, int row, int64_t i, float gate,
                                            float up) {
  const float value = GatedProduct(RoundBf16(gate), RoundBf16(up), p.limit, rows.Weight(p, row));
  StoreBf16(work.hidden + rows.Slot(p, row) * p.inter + i, value);
}

// ---- few rows ----

// Rows up to which the shared expert goes with the routed ones.
inline constexpr int kSplitSharedRows = 16;

// The shared expert's weights have twice the bytes: its blocks take half the tiles.
constexpr int SharedSteps(int steps) { return (steps + 1) / 2; }

// The rows of job blockIdx.y: job 0 is the shared expert if `with_shared`; then each small group.
// count 0: nothing to do.
__device__ __forceinline__ FfnRows SplitJob(const ExpertFfnParams& p, const FfnWorkspace& work,
                                            const SplitPlan& plan, int steps, int64_t tiles,
                                            bool with_shared, int32_t* list) {
  const int job = static_cast<int>(blockIdx.y) - (with_shared ? 1 : 0);
  if (job < 0) return {-1, p.rows, list, 0};
  if (int64_t{blockIdx.x} * steps * plan.tiles() >= tiles) return {0, 0, list, 0};
  if (job >= work.groups.counts[0]) return {0, 0, list, 0};
  const RowGroup group = work.groups.small[job];
  for (int i = threadIdx.x; i < group.count; i += kSplitThreads) {
    list[i] = work.groups.pair_of[group.first + i];
  }
  __syncthreads();
  return {group.expert, group.count, list, 0};
}

// gate and up of this block's tiles of I, and the hidden values.
template <class Chains>
__device__ __forceinline__ void SplitUp(const ExpertFfnParams& p, const FfnWorkspace& work,
                                        const FfnRows& rows, const SplitPlan& plan, int steps,
                                        const typename Chains::Weight& w1,
                                        const typename Chains::Weight& w3, float* products) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, split = plan.Split(warp);
  const int64_t tile_floats = plan.tile_floats<Chains, 2>(), tiles = p.inter / kTileRows;
  const int64_t first_tile = int64_t{blockIdx.x} * steps * plan.tiles();
  const int64_t own_tile = first_tile + plan.Slot(warp);
  SplitProducts<Chains, 2, 4 / Chains::kVectors, false>(
      plan, steps, LiveSteps(own_tile, tiles, plan, steps), plan.First(split),
      plan.First(split + 1), rows.count, p.hidden, products + plan.Slot(warp) * tile_floats,
      [&](int step, int matrix) {
        return typename Chains::Cursor(matrix == 0 ? w1 : w3, own_tile + step * plan.tiles(), lane);
      },
      [](int, int) {}, [&](int row) { return InputRow(p, rows.Row(p, row)); },
      [&](int step, int base) {
        // Each sum takes the place of its first product.
        constexpr int kOutputs = kTileRows * kSplitRows;
#pragma unroll 1
        for (int i = threadIdx.x; i < plan.tiles() * 2 * kOutputs; i += kSplitThreads) {
          const int matrix = i / kOutputs % 2, row = i / kTileRows % kSplitRows;
          if (base + row >= rows.count) continue;
          float* from = products + i / (2 * kOutputs) * tile_floats;
          from[matrix * kProductFloats<Chains> + row * kProductStride + i % kTileRows] =
              SplitSum<Chains, 2>(from, plan, matrix, row, i % kTileRows);
        }
        __syncthreads();
#pragma unroll 1
        for (int i = threadIdx.x; i < plan.tiles() * kOutputs; i += kSplitThreads) {
          const int slot = i / kOutputs, row = i / kTileRows % kSplitRows;
          const int64_t tile = first_tile + step * plan.tiles() + slot;
          if (base + row >= rows.count || tile >= tiles) continue;
          const float* sums = products + slot * tile_floats + row * kProductStride + i % kTileRows;
          StoreHidden(p, work, rows, base + row, tile * kTileRows + i % kTileRows, sums[0],
                      sums[kProductFloats<Chains>]);
        }
      });
}

__global__ void __launch_bounds__(kSplitThreads, 2)
    expert_up_split_kernel(const __grid_constant__ ExpertFfnParams p,
                           const __grid_constant__ FfnWorkspace work,
                           const __grid_constant__ SplitPlan plan, int steps, bool with_shared) {
  auto* const products = DynamicShared<float>();
  __shared__ int32_t list[kGroupRows];
  BeginAfterPredecessors();
  const FfnRows rows = SplitJob(p, work, plan, steps, p.inter / kTileRows, with_shared, list);
  if (rows.count == 0) return;
  if (rows.expert < 0) {
    SplitUp<Fp8Chains>(p, work, rows, plan, SharedSteps(steps), p.shared_w1, p.shared_w3, products);
  } else {
    const ExpertWeights& expert = *p.experts_table[rows.expert];
    SplitUp<Fp4Chains>(p, work, rows, plan, steps, Mxfp4(expert.w1), Mxfp4(expert.w3), products);
  }
}

// Bytes in shared memory from one quantised row of I to the next: an odd number of 16, against bank
// conflicts.
constexpr int64_t StagedRowBytes(int64_t inter) { return (QuantizedRowBytes(inter) / 16 | 1) * 16; }

// This block's tiles of D of the expert's outputs; eight rows at a time are quantised into
// `staged`.
template <class Chains>
__device__ __forceinline__ void SplitDown(const ExpertFfnParams& p, const FfnWorkspace& work,
                                          const FfnRows& rows, const SplitPlan& plan, int steps,
                                          const typename Chains::Weight& w2, float* products,
                                          std::byte* staged) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, split = plan.Split(warp);
  const int64_t tile_floats = plan.tile_floats<Chains, 1>(), tiles = p.hidden / kTileRows;
  const int64_t first_tile = int64_t{blockIdx.x} * steps * plan.tiles();
  const int64_t own_tile = first_tile + plan.Slot(warp);
  const int64_t staged_bytes = StagedRowBytes(p.inter);
  const auto quantise = [&](int base) {
    const int row_groups = static_cast<int>(p.inter / 8);
    const int count = min(rows.count - base, kSplitRows) * row_groups;
    for (int begin = threadIdx.x / 32 * 32; begin < count; begin += kSplitThreads) {
      const int i = begin + lane;
      const bool active = i < count;
      const int row = active ? i / row_groups : 0;
      const int64_t column = active ? i % row_groups * 8 : 0;
      float v[8] = {};
      if (active) LoadBf16x8(work.hidden + rows.Slot(p, base + row) * p.inter + column, v);
      StoreQuantized(v, active, column, p.inter,
                     reinterpret_cast<uint8_t*>(staged + row * staged_bytes));
    }
    __syncthreads();
  };
  int pass = 0;
  SplitProducts<Chains, 1, 8 / Chains::kVectors, false>(
      plan, steps, LiveSteps(own_tile, tiles, plan, steps), plan.First(split),
      plan.First(split + 1), rows.count, p.inter, products + plan.Slot(warp) * tile_floats,
      [&](int step, int) {
        return typename Chains::Cursor(w2, own_tile + step * plan.tiles(), lane);
      },
      [&](int step, int base) {
        if (step == 0 && base == 0) BeginAfterPredecessors();
        if (step > 0 && rows.count <= kSplitRows) return;  // they are still there
        pass = base;
        quantise(base);
      },
      [&](int row) -> const std::byte* { return staged + (row - pass) * staged_bytes; },
      [&](int step, int base) {
#pragma unroll 1
        for (int i = threadIdx.x; i < plan.tiles() * kTileRows * kSplitRows; i += kSplitThreads) {
          const int slot = i / (kTileRows * kSplitRows);
          const int row = i / kTileRows % kSplitRows, tile_row = i % kTileRows;
          const int64_t tile = first_tile + step * plan.tiles() + slot;
          if (base + row >= rows.count || tile >= tiles) continue;
          StoreBf16(
              work.outputs + rows.Slot(p, base + row) * p.hidden + tile * kTileRows + tile_row,
              SplitSum<Chains, 1>(products + slot * tile_floats, plan, 0, row, tile_row));
        }
      });
}

__global__ void __launch_bounds__(kSplitThreads, 2)
    expert_down_split_kernel(const __grid_constant__ ExpertFfnParams p,
                             const __grid_constant__ FfnWorkspace work,
                             const __grid_constant__ SplitPlan plan, int steps, bool with_shared) {
  auto* const products = DynamicShared<float>();
  __shared__ int32_t list[kGroupRows];
  std::byte* staged = reinterpret_cast<std::byte*>(products) + plan.shared_bytes<Fp8Chains, 1>();
  // Which rows are whose was written before the first half started.
  const FfnRows rows = SplitJob(p, work, plan, steps, p.hidden / kTileRows, with_shared, list);
  if (rows.count == 0) {
    BeginAfterPredecessors();
    return;
  }
  if (rows.expert < 0) {
    SplitDown<Fp8Chains>(p, work, rows, plan, SharedSteps(steps), p.shared_w2, products, staged);
  } else {
    SplitDown<Fp4Chains>(p, work, rows, plan, steps, Mxfp4(p.experts_table[rows.expert]->w2), products,
                         staged);
  }
}

// ---- many rows ----

// The rows of the block's large group, or its kGroupRows of the shared expert's.
template <bool kShared>
__device__ __forceinline__ FfnRows TiledJob(const ExpertFfnParams& p, const FfnWorkspace& work,
                                            int32_t* list) {
  if constexpr (kShared) {
    const int first = static_cast<int>(blockIdx.y) * kGroupRows;
    return {-1, min(p.rows - first, kGroupRows), list, first};
  } else {
    if (static_cast<int>(blockIdx.y) >= work.groups.counts[1]) return {0, 0, list, 0};
    const RowGroup group = work.groups.large[blockIdx.y];
    if (threadIdx.x < group.count) {
      list[threadIdx.x] = work.groups.pair_of[group.first + threadIdx.x];
    }
    __syncthreads();
    return {group.expert, group.count, list, 0};
  }
}

template <bool kShared>
using TiledChains = std::conditional_t<kShared, Fp8Chains, Fp4Chains>;
template <bool kShared>
using ExpertShape = TiledShape<TiledChains<kShared>>;
static_assert(ExpertShape<false>::kRows == kGroupRows && ExpertShape<true>::kRows == kGroupRows);

// The first half of the warps along tiles takes tiles of w1, the second the same of w3.
template <bool kShared>
__global__ void __launch_bounds__(ExpertShape<kShared>::kThreads, 1)
    expert_up_tiled_kernel(const __grid_constant__ ExpertFfnParams p,
                           const __grid_constant__ FfnWorkspace work) {
  using Chains = TiledChains<kShared>;
  constexpr int kWarpsM = ExpertShape<kShared>::kWarpsM, kHalf = kWarpsM / 2;
  auto* const shared = DynamicShared<std::byte>();
  __shared__ int32_t list[kGroupRows];
  BeginAfterPredecessors();
  const FfnRows rows = TiledJob<kShared>(p, work, list);
  if (rows.count == 0) return;
  const int64_t tiles = p.inter / kTileRows, first_tile = int64_t{blockIdx.x} * kHalf;
  const int64_t tile = first_tile + threadIdx.x / 32 % kHalf;
  const auto run = [&](const auto& w1, const auto& w3) {
    TiledProducts<Chains, true>(
        static_cast<int>(p.hidden / kChain), tile < tiles, rows.count, p.hidden, shared,
        [&](int warp, int lane) {
          return typename Chains::Cursor(warp < kHalf ? w1 : w3,
                                         min(first_tile + warp % kHalf, tiles - 1), lane);
        },
        [&](int row) { return InputRow(p, rows.Row(p, row)); },
        [&](int row, int tile_row, float gate, float up) {
          StoreHidden(p, work, rows, row, tile * kTileRows + tile_row, gate, up);
        });
  };
  if constexpr (kShared) {
    run(p.shared_w1, p.shared_w3);
  } else {
    const ExpertWeights& expert = *p.experts_table[rows.expert];
    run(Mxfp4(expert.w1), Mxfp4(expert.w3));
  }
}

template <bool kShared>
__global__ void __launch_bounds__(ExpertShape<kShared>::kThreads, 1)
    expert_down_tiled_kernel(const __grid_constant__ ExpertFfnParams p,
                             const __grid_constant__ FfnWorkspace work) {
  using Chains = TiledChains<kShared>;
  constexpr int kWarpsM = ExpertShape<kShared>::kWarpsM;
  auto* const shared = DynamicShared<std::byte>();
  __shared__ int32_t list[kGroupRows];
  BeginAfterPredecessors();
  const FfnRows rows = TiledJob<kShared>(p, work, list);
  if (rows.count == 0) return;
  const int64_t tiles = p.hidden / kTileRows, first_tile = int64_t{blockIdx.x} * kWarpsM;
  const int64_t tile = first_tile + threadIdx.x / 32 % kWarpsM;
  const auto run = [&](const auto& w2) {
    TiledProducts<Chains, false>(
        static_cast<int>(p.inter / kChain), tile < tiles, rows.count, p.inter, shared,
        [&](int warp, int lane) {
          return typename Chains::Cursor(w2, min(first_tile + warp, tiles - 1), lane);
        },
        [&](int row) {
          return reinterpret_cast<const std::byte*>(work.quantised) +
                 rows.Slot(p, row) * QuantizedRowBytes(p.inter);
        },
        [&](int row, int tile_row, float value, float) {
          StoreBf16(work.outputs + rows.Slot(p, row) * p.hidden + tile * kTileRows + tile_row,
                    value);
        });
  };
  if constexpr (kShared) {
    run(p.shared_w2);
  } else {
    run(Mxfp4(p.experts_table[rows.expert]->w2));
  }
}

// ---- sum ----

inline constexpr int kSumThreads = 128;

// y = shared + (routed in their order), f32, rounded. A thread sums eight columns.
static __global__ void __launch_bounds__(kSumThreads)
    sum_experts_kernel(const __grid_constant__ ExpertFfnParams p,
                       const __grid_constant__ FfnWorkspace work) {
  BeginAfterPredecessors();
  const int64_t row = blockIdx.x;
  const int64_t column = (int64_t{blockIdx.y} * kSumThreads + threadIdx.x) * 8;
  if (column >= p.hidden) return;
  const int k = p.experts_per_token;
  float sum[8] = {};
  for (int i = 0; i < k; ++i) {
    const int64_t pair = row * k + i;
    if (static_cast<uint32_t>(p.experts[pair]) >= static_cast<uint32_t>(p.expert_count)) continue;
    float v[8];
    LoadBf16x8(work.outputs + pair * p.hidden + column, v);
#pragma unroll
    for (int j = 0; j < 8; ++j) sum[j] += v[j];
  }
  float v[8];
  LoadBf16x8(work.outputs + (int64_t{p.rows} * k + row) * p.hidden + column, v);
#pragma unroll
  for (int j = 0; j < 8; ++j) v[j] += sum[j];
  StoreBf16x8(v, static_cast<uint16_t*>(p.y) + row * p.hidden + column);
}

}  // namespace dsv4::sm12x
