// SPDX-License-Identifier: Apache-2.0
// The kernels of the two halves of an expert, for few and for many rows; expert_ffn.cu launches
// them. A slot is a pair of a row and one of its K routed experts (slot = row K + i) or, after all
// pairs, a row of the shared expert.
#pragma once

#include <algorithm>
#include <type_traits>

#include "kernels/op/moe.h"
#include "kernels/sm12x/arch/memory.cuh"
#include "kernels/sm12x/bf16.cuh"
#include "kernels/sm12x/expert_rows.cuh"
#include "kernels/sm12x/gemm.cuh"
#include "kernels/sm12x/inner_product.cuh"
#include "kernels/sm12x/quantized_rows.cuh"
#include "kernels/sm12x/swiglu.cuh"

namespace dsv4::sm12x {

static_assert(kGroupThreads == kSplitThreads);

struct FfnWorkspace {
  RowGroups groups;
  uint16_t* hidden;     // [slots, I] bf16: clamped SwiGLU times routing weight
  uint8_t* quantised;   // [slots] quantised rows of I; not of experts in block formats
  uint16_t* outputs;    // [slots, D] bf16
  uint16_t *gate, *up;  // [slots, I] bf16: w1 x and w3 x, of experts in block formats
};

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

// Few rows.

// The shared expert's weights have twice the bytes, so its blocks take half the tiles.
constexpr int SharedSteps(int steps) { return (steps + 1) / 2; }

// The rows of job blockIdx.y: job 0 is the shared expert, job 1 + i group i. Count 0: no work.
__device__ __forceinline__ FfnRows SplitJob(const ExpertFfnParams& p, const FfnWorkspace& work,
                                            const SplitPlan& plan, int steps, int64_t tiles,
                                            int32_t* list) {
  const int job = static_cast<int>(blockIdx.y) - 1;
  if (job < 0) return {-1, p.wave == ExpertWave::kNext ? 0 : p.rows, list, 0};
  if (int64_t{blockIdx.x} * steps * plan.tiles() >= tiles) return {0, 0, list, 0};
  if (job >= work.groups.counts[0]) return {0, 0, list, 0};
  const RowGroup group = work.groups.groups[0][job];
  for (int i = threadIdx.x; i < group.count; i += kSplitThreads) {
    list[i] = work.groups.pair_of[group.first + i];
  }
  __syncthreads();
  return {group.expert, group.count, list, 0};
}

// Computes w1 x, w3 x and the hidden values of this block's tiles of I.
template <class KSlices>
__device__ __forceinline__ void SplitUp(const ExpertFfnParams& p, const FfnWorkspace& work,
                                        const FfnRows& rows, const SplitPlan& plan, int steps,
                                        const typename KSlices::Weight& w1,
                                        const typename KSlices::Weight& w3, float* products) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, split = plan.Split(warp);
  const int64_t tile_floats = plan.tile_floats<KSlices, 2>(), tiles = p.inter / kTileRows;
  const int64_t first_tile = int64_t{blockIdx.x} * steps * plan.tiles();
  const int64_t own_tile = first_tile + plan.Slot(warp);
  SplitProducts<KSlices, 2, 4 / KSlices::kVectors, false>(
      plan, steps, LiveSteps(own_tile, tiles, plan, steps), plan.First(split),
      plan.First(split + 1), rows.count, p.hidden, products + plan.Slot(warp) * tile_floats,
      [&](int step, int matrix) {
        return
            typename KSlices::Cursor(matrix == 0 ? w1 : w3, own_tile + step * plan.tiles(), lane);
      },
      [](int, int) {}, [&](int row) { return InputRow(p, rows.Row(p, row)); },
      [&](int step, int base) {
        // A sum replaces its first product.
        constexpr int kOutputs = kTileRows * kSplitRows;
#pragma unroll 1
        for (int i = threadIdx.x; i < plan.tiles() * 2 * kOutputs; i += kSplitThreads) {
          const int matrix = i / kOutputs % 2, row = i / kTileRows % kSplitRows;
          if (base + row >= rows.count) continue;
          float* from = products + i / (2 * kOutputs) * tile_floats;
          from[matrix * kProductFloats + row * kProductStride + i % kTileRows] =
              SplitSum<2>(from, plan, matrix, row, i % kTileRows);
        }
        __syncthreads();
#pragma unroll 1
        for (int i = threadIdx.x; i < plan.tiles() * kOutputs; i += kSplitThreads) {
          const int slot = i / kOutputs, row = i / kTileRows % kSplitRows;
          const int64_t tile = first_tile + step * plan.tiles() + slot;
          if (base + row >= rows.count || tile >= tiles) continue;
          const float* sums = products + slot * tile_floats + row * kProductStride + i % kTileRows;
          StoreHidden(p, work, rows, base + row, tile * kTileRows + i % kTileRows, sums[0],
                      sums[kProductFloats]);
        }
      });
}

// Routed, Shared: the KSlices of the two kinds of experts.
template <class Routed, class Shared>
__global__ void __launch_bounds__(kSplitThreads, 2)
    expert_up_split_kernel(const __grid_constant__ ExpertFfnParams p,
                           const __grid_constant__ FfnWorkspace work,
                           const __grid_constant__ SplitPlan plan, int steps) {
  auto* const products = DynamicShared<float>();
  __shared__ int32_t list[kSplitGroupRows];
  BeginAfterPredecessors();
  const FfnRows rows = SplitJob(p, work, plan, steps, p.inter / kTileRows, list);
  if (rows.count == 0) return;
  if (rows.expert < 0) {
    SplitUp<Shared>(p, work, rows, plan, SharedSteps(steps), p.shared_w1, p.shared_w3, products);
  } else {
    const ExpertWeights& expert = *p.experts_table[rows.expert];
    SplitUp<Routed>(p, work, rows, plan, steps, Routed::Of(expert.w1), Routed::Of(expert.w3),
                    products);
  }
}

// Bytes in shared memory from one quantised row of I to the next: an odd multiple of 16, against
// bank conflicts.
constexpr int64_t StagedRowBytes(int64_t inter) { return (QuantizedRowBytes(inter) / 16 | 1) * 16; }

// Computes this block's tiles of D of the expert's outputs. Quantises eight rows at a time into
// `staged`.
template <class KSlices>
__device__ __forceinline__ void SplitDown(const ExpertFfnParams& p, const FfnWorkspace& work,
                                          const FfnRows& rows, const SplitPlan& plan, int steps,
                                          const typename KSlices::Weight& w2, float* products,
                                          std::byte* staged) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, split = plan.Split(warp);
  const int64_t tile_floats = plan.tile_floats<KSlices, 1>(), tiles = p.hidden / kTileRows;
  const int64_t first_tile = int64_t{blockIdx.x} * steps * plan.tiles();
  const int64_t own_tile = first_tile + plan.Slot(warp);
  const int64_t staged_bytes = StagedRowBytes(p.inter);
  const auto quantise = [&](int base) {
    const int row_vectors = static_cast<int>(p.inter / 8);
    const int count = min(rows.count - base, kSplitRows) * row_vectors;
    for (int begin = threadIdx.x / 32 * 32; begin < count; begin += kSplitThreads) {
      const int i = begin + lane;
      const bool active = i < count;
      const int row = active ? i / row_vectors : 0;
      const int64_t column = active ? i % row_vectors * 8 : 0;
      float v[8] = {};
      if (active) LoadBf16x8(work.hidden + rows.Slot(p, base + row) * p.inter + column, v);
      StoreQuantized(v, active, column, p.inter,
                     reinterpret_cast<uint8_t*>(staged + row * staged_bytes));
    }
    __syncthreads();
  };
  int pass = 0;
  SplitProducts<KSlices, 1, 8 / KSlices::kVectors, false>(
      plan, steps, LiveSteps(own_tile, tiles, plan, steps), plan.First(split),
      plan.First(split + 1), rows.count, p.inter, products + plan.Slot(warp) * tile_floats,
      [&](int step, int) {
        return typename KSlices::Cursor(w2, own_tile + step * plan.tiles(), lane);
      },
      [&](int step, int base) {
        if (step == 0 && base == 0) BeginAfterPredecessors();
        if (step > 0 && rows.count <= kSplitRows) return;  // still staged
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
              SplitSum<1>(products + slot * tile_floats, plan, 0, row, tile_row));
        }
      });
}

template <class Routed, class Shared>
__global__ void __launch_bounds__(kSplitThreads, 2)
    expert_down_split_kernel(const __grid_constant__ ExpertFfnParams p,
                             const __grid_constant__ FfnWorkspace work,
                             const __grid_constant__ SplitPlan plan, int steps) {
  auto* const products = DynamicShared<float>();
  __shared__ int32_t list[kSplitGroupRows];
  std::byte* staged = reinterpret_cast<std::byte*>(products) + plan.shared_bytes<Fp8Slices, 1>();
  // No wait: the groups were written before the first half started.
  const FfnRows rows = SplitJob(p, work, plan, steps, p.hidden / kTileRows, list);
  if (rows.count == 0) {
    BeginAfterPredecessors();
    return;
  }
  if (rows.expert < 0) {
    SplitDown<Shared>(p, work, rows, plan, SharedSteps(steps), p.shared_w2, products, staged);
  } else {
    SplitDown<Routed>(p, work, rows, plan, steps, Routed::Of(p.experts_table[rows.expert]->w2),
                      products, staged);
  }
}

// Many rows.

// Block shapes for the three kinds of groups of routed experts. In the first half, a warp's first
// tile is of w1 and its second the same tile of w3.
template <class KSlices>
struct RoutedShapes {
  using Small = GemmShape<KSlices, 2, 1, 8, 1>;
  using Middle = GemmShape<KSlices, 2, 4, 8, 1>;
  // The fallback multiplies by MXFP4's scales after each step, and lacks registers for 16 products.
  // A launch suits both shapes: it has the shared memory of the larger.
  static constexpr bool kTall = std::is_same_v<KSlices, Fp4Slices> && DSV4_BLOCK_SCALED_MMA;
  using Large =
      std::conditional_t<kTall, GemmShape<KSlices, 2, 8, 8, 1>, GemmShape<KSlices, 2, 4, 4, 2>>;
  static constexpr int kThreads = Small::kThreads;
  static constexpr int64_t kSharedBytes = std::max(
      {Small::kSharedBytes, Middle::kSharedBytes, GemmShape<KSlices, 2, 4, 4, 2>::kSharedBytes});
  static_assert(Middle::kThreads == kThreads && Large::kThreads == kThreads);
  static_assert(Large::kSharedBytes <= kSharedBytes);
  static_assert(Small::kRows == kSmallGroupRows && Middle::kRows == kMiddleGroupRows &&
                Large::kRows == kLargeGroupRows);
};
// Shapes for the shared expert, with few rows and with many.
template <class KSlices>
using FewShared = GemmShape<KSlices, 2, 4, 4, 2>;
template <class KSlices>
using ManyShared = GemmShape<KSlices, 2, 8, 4, 2>;

// The items of both halves, for Gemm: some tiles of one group of rows. Groups are the outer
// dimension, so that groups of the same expert find its weights in L2.
template <class Shape_, bool kShared, bool kUp>
struct ExpertWork {
  static constexpr int kRun = 0;
  using Shape = Shape_;
  using KSlices = typename Shape::KSlices;
  using Weight = typename KSlices::Weight;
  // Tiles of one weight in a block.
  static constexpr int kBlockTiles = kUp ? Shape::kTiles / 2 : Shape::kTiles;
  struct Item {
    FfnRows rows;
    int count;
    int64_t tile;          // the first
    Weight first, second;  // w1 and w3, or w2
  };
  const ExpertFfnParams& p;
  const FfnWorkspace& work;
  const RowGroup* groups;
  int group_count;

  __device__ __forceinline__ int64_t k() const { return kUp ? p.hidden : p.inter; }
  __device__ __forceinline__ int64_t tiles() const {
    return (kUp ? p.inter : p.hidden) / kTileRows;
  }
  __device__ __forceinline__ int TileBlocks() const {
    return static_cast<int>((tiles() + kBlockTiles - 1) / kBlockTiles);
  }
  __device__ __forceinline__ int items() const { return group_count * TileBlocks(); }
  __device__ __forceinline__ int slices() const { return static_cast<int>(k() / kKSlice); }
  __device__ __forceinline__ int64_t scale_bytes() const { return k(); }
  __device__ __forceinline__ Item At(int index) const {
    const int group = index / TileBlocks();
    Item item;
    item.tile = int64_t{index % TileBlocks()} * kBlockTiles;
    if constexpr (kShared) {
      const int first = group * Shape::kRows;
      item.rows = {-1, min(p.rows - first, Shape::kRows), nullptr, first};
      item.first = kUp ? p.shared_w1 : p.shared_w2;
      item.second = p.shared_w3;
    } else {
      const RowGroup of = groups[group];
      item.rows = {of.expert, of.count, work.groups.pair_of + of.first, 0};
      const ExpertWeights& expert = *p.experts_table[of.expert];
      item.first = KSlices::Of(kUp ? expert.w1 : expert.w2);
      item.second = KSlices::Of(expert.w3);
    }
    item.count = item.rows.count;
    return item;
  }
  __device__ __forceinline__ typename KSlices::Cursor Tile(const Item& item, int i) const {
    const int64_t tile = min(item.tile + (kUp ? i / 2 : i), tiles() - 1);
    return typename KSlices::Cursor(kUp && i % 2 != 0 ? item.second : item.first, tile, 0);
  }
  __device__ __forceinline__ const std::byte* rows() const {
    return kUp ? static_cast<const std::byte*>(p.x)
               : reinterpret_cast<const std::byte*>(work.quantised);
  }
  __device__ __forceinline__ uint32_t Row(const Item& item, int i) const {
    return static_cast<uint32_t>(kUp ? item.rows.Row(p, i) : item.rows.Slot(p, i)) *
           static_cast<uint32_t>(QuantizedRowBytes(k()) / 16);
  }
  __device__ __forceinline__ void Store(const Item& item, int first_tile, int first_row,
                                        const GemmSums<Shape>& sums) const {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int c = 0; c < Shape::kCols; ++c) {
      const int first = first_row + c * 8;
      if (first >= item.count) break;
      const bool stores = first + g < item.count;
      const int64_t slot = stores ? item.rows.Slot(p, first + g) : 0;
      if constexpr (kUp) {
        const int64_t tile = item.tile + first_tile / 2;
        if (tile >= tiles()) break;
        float hidden[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = min(first + 2 * t + i % 2, item.count - 1);
          hidden[i] = GatedProduct(RoundBf16(sums[0][c][i]), RoundBf16(sums[1][c][i]), p.limit,
                                   item.rows.Weight(p, row));
        }
        StoreBf16Tile(hidden, stores ? work.hidden + slot * p.inter + tile * kTileRows : nullptr);
      } else {
#pragma unroll
        for (int m = 0; m < Shape::kTilesM; ++m) {
          const int64_t tile = item.tile + first_tile + m;
          if (tile >= tiles()) break;
          StoreBf16Tile(sums[m][c],
                        stores ? work.outputs + slot * p.hidden + tile * kTileRows : nullptr);
        }
      }
    }
  }
};

template <class Shape, bool kUp>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    expert_shared_gemm_kernel(const __grid_constant__ ExpertFfnParams p,
                              const __grid_constant__ FfnWorkspace work) {
  BeginAfterPredecessors();
  const int groups = (p.rows + Shape::kRows - 1) / Shape::kRows;
  Gemm<Shape>(ExpertWork<Shape, true, kUp>{p, work, nullptr, groups}, static_cast<int>(blockIdx.x),
              DynamicShared<std::byte>());
}

// All kinds of groups, the largest first. A block without items of one kind continues with the next
// kind, so that a kind with few groups costs no wave of its own.
template <class KSlices, bool kUp>
__global__ void __launch_bounds__(RoutedShapes<KSlices>::kThreads, 1)
    expert_gemm_kernel(const __grid_constant__ ExpertFfnParams p,
                       const __grid_constant__ FfnWorkspace work) {
  BeginAfterPredecessors();
  int first = static_cast<int>(blockIdx.x);
  const auto multiply = [&]<class Shape>(std::type_identity<Shape>, const RowGroup* groups,
                                         int count) {
    const ExpertWork<Shape, false, kUp> all{p, work, groups, count};
    Gemm<Shape>(all, first, DynamicShared<std::byte>());
    __syncthreads();
    const int blocks = static_cast<int>(gridDim.x);
    first = (first + blocks - all.items() % blocks) % blocks;
  };
  using Shapes = RoutedShapes<KSlices>;
  const RowGroups& g = work.groups;
  multiply(std::type_identity<typename Shapes::Large>(), g.groups[2], g.counts[2]);
  multiply(std::type_identity<typename Shapes::Middle>(), g.groups[1], g.counts[1]);
  multiply(std::type_identity<typename Shapes::Small>(), g.groups[0], g.counts[0]);
}

}  // namespace dsv4::sm12x
