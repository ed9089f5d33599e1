// SPDX-License-Identifier: Apache-2.0
// y = x w^T for several weights that share x, launched by linear_fp8, linear_bf16, moe_gate and
// output_groups. Chooses between the kernel for few rows and the GEMM for many; both give the same
// bits.
#pragma once

#include <algorithm>

#include "kernels/registry/kernel_entry.h"
#include "kernels/sm12x/arch/memory.cuh"
#include "kernels/sm12x/bf16.cuh"
#include "kernels/sm12x/gemm.cuh"
#include "kernels/sm12x/inner_product.cuh"
#include "kernels/sm12x/launch.h"
#include "kernels/sm12x/overlapped_launch.cuh"

namespace dsv4::sm12x {

template <class KSlices>
struct LinearJob {
  struct Part {
    typename KSlices::Weight w;
    void* y = nullptr;
    bool bf16 = true;     // y [rows, n] is bf16, rounded; else f32
    int64_t width = w.n;  // elements from one row of y to the next
  };
  static constexpr int kMaxParts = 5;
  int rows = 0;
  const std::byte* x = nullptr;
  int64_t row_bytes = 0;    // from one row of x to the next
  int64_t scale_bytes = 0;  // from a row to its scales
  // If parts are groups of one weight, each with its own columns of x: tiles of a group, and bytes
  // from one group's columns to the next group's. 0: all parts multiply all columns.
  int64_t group_tiles = 0, group_bytes = 0;
  int64_t run_width = 0;  // elements of y from a run's sums to the next run's; LinearWork::kRun
  int part_count = 0;
  Part parts[kMaxParts];

  __host__ __device__ int64_t Tiles(int part) const {
    return (parts[part].w.n + kTileRows - 1) / kTileRows;
  }
};

// The part of tile `*tile`, which counts the tiles of all parts. Sets `*tile` to its index within
// the part.
template <class KSlices>
__device__ __forceinline__ const typename LinearJob<KSlices>::Part& PartOf(
    const LinearJob<KSlices>& job, int64_t* tile) {
  int part = 0;
  while (part + 1 < job.part_count && *tile >= job.Tiles(part)) *tile -= job.Tiles(part++);
  return job.parts[part];
}

template <class Part>
__device__ __forceinline__ void StoreOutput(const Part& part, int64_t row, int64_t n, float value) {
  if (n >= part.w.n) return;
  const int64_t at = row * part.width + n;
  if (part.bf16) {
    static_cast<uint16_t*>(part.y)[at] = static_cast<uint16_t>(Bf16x2(value, 0));
  } else {
    static_cast<float*>(part.y)[at] = value;
  }
}

template <class KSlices>
__device__ __forceinline__ const std::byte* GroupOf(const LinearJob<KSlices>& job, int64_t tile) {
  return job.x + (job.group_tiles == 0 ? 0 : tile / job.group_tiles * job.group_bytes);
}

// K slices of weights that a warp holds: 32 registers.
template <class KSlices>
inline constexpr int kHeldSlices = 8 / KSlices::kVectors;

// A block takes plan.tiles() tiles at a time, `steps` times, and `share` rows from
// blockIdx.y * share on.
template <class KSlices>
__global__ void __launch_bounds__(kMaxSplitWarps * 32, 1)
    linear_split_kernel(const __grid_constant__ LinearJob<KSlices> job,
                        const __grid_constant__ SplitPlan plan, int64_t tiles, int steps,
                        int share) {
  auto* const products = DynamicShared<float>();
  const int warp = threadIdx.x / 32, split = plan.Split(warp);
  const int64_t tile_floats = plan.tile_floats<KSlices, 1>();
  const int64_t first_tile = int64_t{blockIdx.x} * steps * plan.tiles();
  const int64_t own_tile = first_tile + plan.Slot(warp);
  const int first_row = static_cast<int>(blockIdx.y) * share;
  const int rows = min(job.rows - first_row, share);
  const std::byte* x = GroupOf(job, min(own_tile, tiles - 1));
  SplitProducts<KSlices, 1, kHeldSlices<KSlices>, true>(
      plan, steps, LiveSteps(own_tile, tiles, plan, steps), plan.First(split),
      plan.First(split + 1), rows, job.scale_bytes, products + plan.Slot(warp) * tile_floats,
      [&](int step, int) {
        int64_t tile = min(own_tile + step * plan.tiles(), tiles - 1);
        const auto& part = PartOf(job, &tile);
        return typename KSlices::Cursor(part.w, tile, threadIdx.x % 32);
      },
      [&](int step, int base) {
        if (step == 0 && base == 0) BeginAfterPredecessors();
        if (base == 0) x = GroupOf(job, min(own_tile + step * plan.tiles(), tiles - 1));
      },
      [&](int row) { return x + (first_row + row) * job.row_bytes; },
      [&](int step, int base) {
        const int of_pass = min(rows - base, plan.rows());
#pragma unroll 1
        for (int i = threadIdx.x; i < plan.tiles() * kTileRows * of_pass; i += plan.threads()) {
          const int tile_row = i % kTileRows, slot = i / kTileRows % plan.tiles();
          const int row = i / kTileRows / plan.tiles();
          int64_t tile = first_tile + step * plan.tiles() + slot;
          if (tile >= tiles) continue;
          const auto& part = PartOf(job, &tile);
          StoreOutput(part, first_row + base + row, tile * kTileRows + tile_row,
                      SplitSum<1>(products + slot * tile_floats, plan, 0, row, tile_row));
        }
      });
}

// The items of a launch: kTiles tiles by kRows rows. They are ordered in bands of kBand blocks of
// tiles, so that items that run at the same time share weights and rows in L2.
// kRun_ >= 0: see Gemm. kRun_ < 0: an item has only a run of -kRun_ K slices, and the f32 sums of
// each run are stored apart. K is a multiple of a run.
template <class Shape, int kRun_>
struct LinearWork {
  static constexpr int kRun = std::max(kRun_, 0);
  static constexpr int kItemSlices = std::max(-kRun_, 0);  // 0: all
  using KSlices = typename Shape::KSlices;
  struct Item {
    int64_t tile, row;  // the first
    int count;
    int64_t at;  // bytes from job.x to the first row's columns
    int run;
  };
  static constexpr int kBand = 8;
  const LinearJob<KSlices>& job;
  int64_t tiles;

  __host__ __device__ int TileBlocks() const {
    return static_cast<int>((tiles + Shape::kTiles - 1) / Shape::kTiles);
  }
  __host__ __device__ int RowBlocks() const { return (job.rows + Shape::kRows - 1) / Shape::kRows; }
  __host__ __device__ int Slices() const { return static_cast<int>(job.parts[0].w.k / kKSlice); }
  __host__ __device__ int Runs() const { return kItemSlices == 0 ? 1 : Slices() / kItemSlices; }
  __host__ __device__ int items() const { return TileBlocks() * RowBlocks() * Runs(); }
  __host__ __device__ int slices() const { return kItemSlices == 0 ? Slices() : kItemSlices; }
  __device__ __forceinline__ int64_t scale_bytes() const { return job.scale_bytes; }
  __device__ __forceinline__ Item At(int index) const {
    const int row_blocks = RowBlocks(), of_run = TileBlocks() * row_blocks;
    const int run = kItemSlices == 0 ? 0 : index / of_run;
    index -= run * of_run;
    const int band = index / (kBand * row_blocks);
    const int wide = min(TileBlocks() - band * kBand, kBand),
              of_band = index % (kBand * row_blocks);
    const int64_t tile = int64_t{band * kBand + of_band % wide} * Shape::kTiles;
    const int64_t row = int64_t{of_band / wide} * Shape::kRows;
    return {tile, row, static_cast<int>(min(job.rows - row, int64_t{Shape::kRows})),
            GroupOf(job, tile) - job.x + row * job.row_bytes +
                run * (kItemSlices * KSlices::kSliceBytes),
            run};
  }
  __device__ __forceinline__ typename KSlices::Cursor Tile(const Item& item, int i) const {
    int64_t tile = min(item.tile + i, tiles - 1);
    const auto& part = PartOf(job, &tile);
    typename KSlices::Cursor cursor(part.w, tile, 0);
    cursor.data += item.run * (kItemSlices * KSlices::kVectors * 512);
    return cursor;
  }
  __device__ __forceinline__ const std::byte* rows() const { return job.x; }
  __device__ __forceinline__ uint32_t Row(const Item& item, int i) const {
    return static_cast<uint32_t>((item.at + i * job.row_bytes) / 16);
  }
  __device__ __forceinline__ void Store(const Item& item, int first_tile, int first_row,
                                        const GemmSums<Shape>& sums) const {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const int count = item.count - first_row;
    const int64_t row = item.row + first_row;
#pragma unroll
    for (int m = 0; m < Shape::kTilesM; ++m) {
      int64_t tile = item.tile + first_tile + m;
      if (tile >= tiles) break;
      const auto& part = PartOf(job, &tile);
      const int64_t width = part.width, n = tile * kTileRows;
      if (part.bf16 && width % kTileRows == 0 && part.w.n % kTileRows == 0) {
        uint16_t* to = static_cast<uint16_t*>(part.y) + (row + g) * width + n;
#pragma unroll
        for (int c = 0; c < Shape::kCols; ++c) {
          StoreBf16Tile(sums[m][c], g + c * 8 < count ? to : nullptr);
          to += 8 * width;
        }
        continue;
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int64_t at = n + g + i / 2 * 8;
        if (at >= part.w.n) continue;
        const int first = 2 * t + i % 2;
        int64_t to = (row + first) * width + item.run * job.run_width + at;
#pragma unroll
        for (int c = 0; c < Shape::kCols; ++c) {
          if (first + c * 8 < count) {
            if (part.bf16) {
              static_cast<uint16_t*>(part.y)[to] = static_cast<uint16_t>(Bf16x2(sums[m][c][i], 0));
            } else {
              static_cast<float*>(part.y)[to] = sums[m][c][i];
            }
          }
          to += 8 * width;
        }
      }
    }
  }
};

template <class Shape, int kRun>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kResident)
    linear_gemm_kernel(const __grid_constant__ LinearJob<typename Shape::KSlices> job,
                       int64_t tiles) {
  const LinearWork<Shape, kRun> work{job, tiles};
  // Weights are constant, so the first ones are prefetched to L2 while predecessors still run.
  constexpr int kAhead = 4;
  if (threadIdx.x < Shape::kTiles) {
    work.Tile(work.At(blockIdx.x), threadIdx.x).Prefetch(0, min(work.slices(), kAhead));
  }
  BeginAfterPredecessors();
  Gemm<Shape>(work, static_cast<int>(blockIdx.x), DynamicShared<std::byte>());
}

// The shapes of a GEMM's block: 4 tiles by 16 rows, 4 by 32, 4 by 64, 8 by 32, 8 by 64, 8 by 96, 8
// by 128. A block has few warps: what a warp does in a stage besides its MMAs hardly depends on its
// share of them.
template <class KSlices>
using ThinBlock = GemmShape<KSlices, 1, 2, 4, 1, 2>;
template <class KSlices>
using ShortBlock = GemmShape<KSlices, 1, 4, 4, 1, 2>;
template <class KSlices>
using SquareBlock = GemmShape<KSlices, 2, 4, 2, 2, 2>;
template <class KSlices>
using LowBlock = GemmShape<KSlices, 2, 4, 4, 1, 2>;
template <class KSlices>
using MiddleBlock = GemmShape<KSlices, 2, 4, 4, 2>;
template <class KSlices>
using BroadBlock = GemmShape<KSlices, 2, 6, 4, 2>;
template <class KSlices>
using WideBlock = GemmShape<KSlices, 2, 8, 4, 2>;

template <class Shape, int kRun>
void LaunchGemm(const LaunchContext& context, const LinearJob<typename Shape::KSlices>& job,
                int64_t tiles) {
  const LinearWork<Shape, kRun> work{job, tiles};
  const int items = work.items();
  if constexpr (Shape::kResident > 1 && kRun == 0) {
    // With at most one block per multiprocessor, a block may use all shared memory for stages. For
    // few stages this costs more than it gains: on SM12x, blocks of the next launch cannot start
    // on the same multiprocessor.
    using Alone = GemmShape<typename Shape::KSlices, Shape::kTilesM, Shape::kCols, Shape::kWarpsM,
                            Shape::kWarpsN>;
    constexpr int kLeastStages = 64;
    if (items <= context.multiprocessors && work.slices() * Shape::kParts >= kLeastStages) {
      return LaunchGemm<Alone, kRun>(context, job, tiles);
    }
  }
  const int blocks = std::min(items, Shape::kResident * context.multiprocessors);
  LaunchOverlapped(CudaStreamOf(context), dim3(static_cast<unsigned>(blocks)), Shape::kThreads,
                   Shape::kSharedBytes, linear_gemm_kernel<Shape, kRun>, job, tiles);
}

// The kernel of a launch: kHeld keeps weights in registers while all rows pass, the others are
// GEMMs of one of the shapes. All give the same bits.
enum LinearPath { kByRule, kHeld, kThin, kShort, kSquare, kLow, kMiddle, kBroad, kWide };
enum LinearKnob { kPathKnob };
inline constexpr const char* kLinearKnobs[] = {"path"};
inline constexpr KernelConfig kLinearConfigs[] = {{{kByRule}}, {{kHeld}},   {{kThin}},
                                                  {{kShort}},  {{kSquare}}, {{kLow}},
                                                  {{kMiddle}}, {{kBroad}},  {{kWide}}};

// The shape whose launch takes the least time by the costs below.
// - runs: items of each block of tiles and rows, along K.
// - low: whether kLow is a candidate. bf16 has no room for enough of its stages.
inline LinearPath GemmPathFor(int multiprocessors, int64_t tiles, int64_t rows, int64_t runs,
                              bool low) {
  // Nanoseconds of a K slice on an H100, with `resident` blocks on each multiprocessor (`full`) and
  // with one (`alone`).
  struct Cost {
    LinearPath path;
    int tiles, rows, resident;
    double full, alone;
  };
  constexpr Cost kCosts[] = {{kThin, 4, 16, 2, 480, 320},   {kShort, 4, 32, 2, 760, 380},
                             {kSquare, 4, 64, 2, 900, 520}, {kLow, 8, 32, 2, 900, 720},
                             {kMiddle, 8, 64, 1, 860, 860}, {kBroad, 8, 96, 1, 1170, 1170},
                             {kWide, 8, 128, 1, 1440, 1440}};
  LinearPath best = kByRule;
  double least = 0;
  for (const Cost& c : kCosts) {
    if (c.path == kLow && !low) continue;
    const int64_t items = (tiles + c.tiles - 1) / c.tiles * ((rows + c.rows - 1) / c.rows) * runs;
    const int64_t blocks = int64_t{c.resident} * multiprocessors;
    const int64_t rounds = (items + blocks - 1) / blocks;
    const double time = items <= multiprocessors ? c.alone : c.full * static_cast<double>(rounds);
    if (best == kByRule || time < least) {
      best = c.path;
      least = time;
    }
  }
  return best;
}

// Whether to keep weights in registers (kHeld): up to 8 rows, and up to 64 where tiles are few.
// There a GEMM would wait for memory, since it has fewer bytes in flight.
inline bool HoldsWeights(int multiprocessors, int64_t tiles, int64_t rows) {
  // kProducts: products of a tile and eight rows, for each multiprocessor.
  constexpr int64_t kMostRows = 64, kProducts = 4;
  return rows <= kSplitRows ||
         (rows <= kMostRows &&
          tiles * ((rows + kSplitRows - 1) / kSplitRows) <= kProducts * multiprocessors);
}

template <class KSlices>
void LaunchHeld(const LaunchContext& context, const LinearJob<KSlices>& job, int64_t tiles) {
  constexpr int kBlocks = 2;  // of a multiprocessor, before a block takes several sets of tiles
  SplitPlan plan = SplitPlanOf<KSlices>(job.parts[0].w.k, tiles, job.rows);
  const int64_t sets = (tiles + plan.tiles() - 1) / plan.tiles();
  const int64_t most_blocks = int64_t{kBlocks} * context.multiprocessors;
  int steps = SplitSteps(sets, most_blocks);
  // More than eight steps: blocks run in several waves, and the last wave should be short.
  if (sets > 8 * most_blocks && sets < 24 * most_blocks) steps = 4;
  const int64_t blocks = (sets + steps - 1) / steps;
  // Where tiles are few, several blocks share the rows: reading activations then takes longer than
  // reading weights from L2 again.
  const int64_t groups = (job.rows + kSplitRows - 1) / kSplitRows;
  const int64_t shares = std::min(groups, std::max<int64_t>(1, context.multiprocessors / blocks));
  const int share = static_cast<int>((groups + shares - 1) / shares) * kSplitRows;
  // If equal steps leave few blocks, each warp prefetches all of its first tile, for more bytes in
  // flight. With enough blocks that is slower (docs/kernels.md, What bounds them).
  if (steps > 1 && 8 * blocks < 7 * most_blocks) plan.ahead = true;
  const auto row_shares = static_cast<unsigned>((job.rows + share - 1) / share);
  LaunchOverlapped(CudaStreamOf(context), dim3(static_cast<unsigned>(blocks), row_shares),
                   plan.threads(), plan.shared_bytes<KSlices, 1>(), linear_split_kernel<KSlices>,
                   job, plan, tiles, steps, share);
}

// Launches by `path` where possible, else by rule. kRun: see LinearWork.
template <class KSlices, int kRun = 0>
void LaunchLinear(const LaunchContext& context, const LinearJob<KSlices>& job, LinearPath path) {
  int64_t tiles = 0;
  for (int i = 0; i < job.part_count; ++i) tiles += job.Tiles(i);
  if constexpr (kRun == 0) {
    if (path == kByRule && HoldsWeights(context.multiprocessors, tiles, job.rows)) path = kHeld;
    if (path == kHeld && SplitFits<KSlices, 1>(job.parts[0].w.k)) {
      return LaunchHeld(context, job, tiles);
    }
  }
  if constexpr (kRun > 0) {
    // The shape for many rows that has registers for the sums of a run.
    LaunchGemm<MiddleBlock<KSlices>, kRun>(context, job, tiles);
  } else {
    if (path == kByRule || path == kHeld) {
      const int64_t runs = kRun < 0 ? job.parts[0].w.k / kKSlice / -kRun : 1;
      path = GemmPathFor(context.multiprocessors, tiles, job.rows, runs, KSlices::kQuantised);
    }
    switch (path) {
      case kThin:
        return LaunchGemm<ThinBlock<KSlices>, kRun>(context, job, tiles);
      case kShort:
        return LaunchGemm<ShortBlock<KSlices>, kRun>(context, job, tiles);
      case kSquare:
        return LaunchGemm<SquareBlock<KSlices>, kRun>(context, job, tiles);
      case kLow:
        if constexpr (KSlices::kQuantised) {
          return LaunchGemm<LowBlock<KSlices>, kRun>(context, job, tiles);
        }
        return LaunchGemm<MiddleBlock<KSlices>, kRun>(context, job, tiles);
      case kBroad:
        return LaunchGemm<BroadBlock<KSlices>, kRun>(context, job, tiles);
      case kWide:
        return LaunchGemm<WideBlock<KSlices>, kRun>(context, job, tiles);
      default:
        return LaunchGemm<MiddleBlock<KSlices>, kRun>(context, job, tiles);
    }
  }
}

// The path that a config of kLinearConfigs names.
inline LinearPath PathOf(const KernelConfig& config) {
  return static_cast<LinearPath>(config.values[kPathKnob]);
}

}  // namespace dsv4::sm12x
