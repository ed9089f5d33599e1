// SPDX-License-Identifier: Apache-2.0
// y = x w^T for several weights that share x: what linear_fp8, linear_bf16, moe_gate and
// output_groups launch, with the choice between few and many rows. Both give the same bits.
#pragma once

#include <algorithm>

#include "kernels/registry/kernel_entry.h"
#include "kernels/sm12x/arch/memory.cuh"
#include "kernels/sm12x/bf16.cuh"
#include "kernels/sm12x/inner_product.cuh"
#include "kernels/sm12x/launch.h"
#include "kernels/sm12x/overlapped_launch.cuh"

namespace dsv4::sm12x {

template <class Chains>
struct LinearJob {
  struct Part {
    typename Chains::Weight w;
    void* y = nullptr;
    bool bf16 = true;  // y [rows, n] is bf16, rounded; else f32
  };
  static constexpr int kMaxParts = 5;
  int rows = 0;
  const std::byte* x = nullptr;
  int64_t row_bytes = 0;    // from one row of x to the next
  int64_t scale_bytes = 0;  // from a row to its scales
  // Where parts are groups of one weight that have their own columns of x: tiles of a group, and
  // bytes from a group's columns to the next. 0: all parts have the same.
  int64_t group_tiles = 0, group_bytes = 0;
  int part_count = 0;
  Part parts[kMaxParts];

  __host__ __device__ int64_t Tiles(int part) const {
    return (parts[part].w.n + kTileRows - 1) / kTileRows;
  }
};

// The part that tile `tile` of all parts' tiles belongs to; `tile` becomes the part's.
template <class Chains>
__device__ __forceinline__ const typename LinearJob<Chains>::Part& PartOf(
    const LinearJob<Chains>& job, int64_t* tile) {
  int part = 0;
  while (part + 1 < job.part_count && *tile >= job.Tiles(part)) *tile -= job.Tiles(part++);
  return job.parts[part];
}

template <class Part>
__device__ __forceinline__ void StoreOutput(const Part& part, int64_t row, int64_t n, float value) {
  if (n >= part.w.n) return;
  const int64_t at = row * part.w.n + n;
  if (part.bf16) {
    static_cast<uint16_t*>(part.y)[at] = static_cast<uint16_t>(Bf16x2(value, 0));
  } else {
    static_cast<float*>(part.y)[at] = value;
  }
}

template <class Chains>
__device__ __forceinline__ const std::byte* GroupOf(const LinearJob<Chains>& job, int64_t tile) {
  return job.x + (job.group_tiles == 0 ? 0 : tile / job.group_tiles * job.group_bytes);
}

// 32 registers of weights.
template <class Chains>
inline constexpr int kHeldChains = 8 / Chains::kVectors;

// A block takes plan.tiles() tiles at a time, `steps` times.
template <class Chains>
__global__ void __launch_bounds__(kMaxSplitWarps * 32, 1)
    linear_split_kernel(const __grid_constant__ LinearJob<Chains> job,
                        const __grid_constant__ SplitPlan plan, int64_t tiles, int steps) {
  auto* const products = DynamicShared<float>();
  const int warp = threadIdx.x / 32, split = plan.Split(warp);
  const int64_t tile_floats = plan.tile_floats<Chains, 1>();
  const int64_t first_tile = int64_t{blockIdx.x} * steps * plan.tiles();
  const int64_t own_tile = first_tile + plan.Slot(warp);
  const std::byte* x = GroupOf(job, min(own_tile, tiles - 1));
  SplitProducts<Chains, 1, kHeldChains<Chains>, true>(
      plan, steps, LiveSteps(own_tile, tiles, plan, steps), plan.First(split),
      plan.First(split + 1), job.rows, job.scale_bytes, products + plan.Slot(warp) * tile_floats,
      [&](int step, int) {
        int64_t tile = min(own_tile + step * plan.tiles(), tiles - 1);
        const auto& part = PartOf(job, &tile);
        return typename Chains::Cursor(part.w, tile, threadIdx.x % 32);
      },
      [&](int step, int base) {
        if (step == 0 && base == 0) BeginAfterPredecessors();
        if (base == 0) x = GroupOf(job, min(own_tile + step * plan.tiles(), tiles - 1));
      },
      [&](int row) { return x + row * job.row_bytes; },
      [&](int step, int base) {
        const int rows = min(job.rows - base, plan.rows());
#pragma unroll 1
        for (int i = threadIdx.x; i < plan.tiles() * kTileRows * rows; i += plan.threads()) {
          const int tile_row = i % kTileRows, slot = i / kTileRows % plan.tiles();
          const int row = i / kTileRows / plan.tiles();
          int64_t tile = first_tile + step * plan.tiles() + slot;
          if (tile >= tiles) continue;
          const auto& part = PartOf(job, &tile);
          StoreOutput(part, base + row, tile * kTileRows + tile_row,
                      SplitSum<Chains, 1>(products + slot * tile_floats, plan, 0, row, tile_row));
        }
      });
}

template <class Chains>
__global__ void __launch_bounds__(TiledShape<Chains>::kThreads, 1)
    linear_tiled_kernel(const __grid_constant__ LinearJob<Chains> job, int64_t tiles) {
  using Shape = TiledShape<Chains>;
  auto* const shared = DynamicShared<std::byte>();
  BeginAfterPredecessors();
  const int64_t first_row = int64_t{blockIdx.y} * Shape::kRows;
  const int64_t first_tile = int64_t{blockIdx.x} * Shape::kWarpsM;
  int64_t tile = first_tile + threadIdx.x / 32 % Shape::kWarpsM;
  const bool live = tile < tiles;
  const std::byte* x = GroupOf(job, first_tile) + first_row * job.row_bytes;
  const auto& part = PartOf(job, &tile);
  TiledProducts<Chains, false>(
      static_cast<int>(part.w.k / kChain), live,
      static_cast<int>(min(job.rows - first_row, int64_t{Shape::kRows})), job.scale_bytes, shared,
      [&](int warp, int lane) {
        int64_t of = min(first_tile + warp, tiles - 1);
        const auto& part_of = PartOf(job, &of);
        return typename Chains::Cursor(part_of.w, of, lane);
      },
      [&](int row) { return x + row * job.row_bytes; },
      [&](int row, int tile_row, float value, float) {
        StoreOutput(part, first_row + row, tile * kTileRows + tile_row, value);
      });
}

// Rows up to which each weight is held while rows pass: more where tiles of many rows would leave
// multiprocessors idle.
inline constexpr int kSplitLinearRows = 32, kSplitNarrowRows = 128;
inline constexpr int64_t kNarrowBlocks = 96;

// Knobs of the linears. Up to how many rows each weight is held while they pass, 0 for what is said
// above; so many blocks for each multiprocessor before one takes several sets of tiles.
enum LinearKnob { kSplitRowsKnob, kSplitBlocksKnob };
inline constexpr const char* kLinearKnobs[] = {"split_rows", "split_blocks_per_multiprocessor"};
inline constexpr KernelConfig kLinearConfigs[] = {{{0, 2}},  {{0, 1}},  {{0, 4}},
                                                  {{16, 2}}, {{64, 2}}, {{128, 2}}};

template <class Chains>
void LaunchLinear(const LaunchContext& context, const LinearJob<Chains>& job,
                  const KernelConfig& config) {
  const cudaStream_t stream = CudaStreamOf(context);
  int64_t tiles = 0;
  for (int i = 0; i < job.part_count; ++i) tiles += job.Tiles(i);
  using Shape = TiledShape<Chains>;
  const int64_t k = job.parts[0].w.k;
  const int64_t tile_blocks = (tiles + Shape::kWarpsM - 1) / Shape::kWarpsM;
  const int held_rows = tile_blocks < kNarrowBlocks ? kSplitNarrowRows : kSplitLinearRows;
  const int split_rows =
      config.values[kSplitRowsKnob] > 0 ? config.values[kSplitRowsKnob] : held_rows;
  if (job.rows <= split_rows && SplitFits<Chains, 1>(k)) {
    SplitPlan plan = SplitPlanOf<Chains>(k, tiles, job.rows);
    const int64_t sets = (tiles + plan.tiles() - 1) / plan.tiles();
    const int64_t most_blocks = int64_t{config.values[kSplitBlocksKnob]} * context.multiprocessors;
    const int steps = SplitSteps(sets, most_blocks);
    const int64_t blocks = (sets + steps - 1) / steps;
    // Where equal steps leave few blocks, each has more under way: 14.7 us for 15.1 of wq_b with
    // index wq_b on 132 multiprocessors. Where blocks are enough it costs 5 %; and sharing those 640
    // sets out to 264 blocks, by two or three, instead of 214 gains nothing.
    if (steps > 1 && 8 * blocks < 7 * most_blocks) plan.ahead = true;
    LaunchOverlapped(stream, dim3(static_cast<unsigned>(blocks)), plan.threads(),
                     plan.shared_bytes<Chains, 1>(), linear_split_kernel<Chains>, job, plan, tiles,
                     steps);
    return;
  }
  const dim3 blocks(static_cast<unsigned>(tile_blocks),
                    static_cast<unsigned>((job.rows + Shape::kRows - 1) / Shape::kRows));
  LaunchOverlapped(stream, blocks, Shape::kThreads, Shape::SharedBytes(k),
                   linear_tiled_kernel<Chains>, job, tiles);
}

}  // namespace dsv4::sm12x
