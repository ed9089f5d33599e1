// SPDX-License-Identifier: Apache-2.0
// y[r, n] = sum over k of w[n, k] x[r, k] for packed weights and many rows, in the order of
// inner_product.cuh.
//
// Blocks are persistent: a block takes one item (some weight tiles by some activation rows) after
// the other. It keeps a ring of stages in shared memory. A stage holds 128 bytes of each activation
// row and the matching elements of each weight tile. cp.async loads kStages - 1 stages ahead, also
// across the ends of items.
//
// A warp computes kTilesM weight tiles by kCols times eight rows. Their f32 sums and the products
// of the current K slice stay in registers. A K slice is processed in steps of 32 elements: while
// the MMAs of one step run, the operands of the next one are loaded from shared memory, also across
// the ends of stages and items.
//
// Packed weights are in fragment order (packed_layout.h): a 16-byte load gives a lane the operand
// that ldmatrix would. The 16-byte pieces of activation rows are swizzled, so that the eight lanes
// of a phase use all banks.
#pragma once

#include <algorithm>
#include <type_traits>

#include "kernels/sm12x/arch/fragments.cuh"
#include "kernels/sm12x/arch/memory.cuh"
#include "kernels/sm12x/bf16.cuh"
#include "kernels/sm12x/inner_product.cuh"
#include "kernels/sm12x/overlapped_launch.cuh"

namespace dsv4::sm12x {

// The shape of a block. A warp has kTilesM weight tiles by kCols times eight rows; a block has
// kWarpsM warps along the weights and kWarpsN along the rows. kResident: blocks resident on a
// multiprocessor of SM12x.
template <class KSlices_, int kTilesM_, int kCols_, int kWarpsM_, int kWarpsN_, int kResident_ = 1>
struct GemmShape {
  using KSlices = KSlices_;
  static constexpr int kTilesM = kTilesM_, kCols = kCols_, kWarpsM = kWarpsM_, kWarpsN = kWarpsN_;
  static constexpr int kResident = kResident_;
  static constexpr int kThreads = kWarpsM * kWarpsN * 32;
  static constexpr int kTiles = kWarpsM * kTilesM, kRows = kWarpsN * kCols * 8;
  static constexpr int kPieces = 8;  // of 16 bytes, of a row in a stage
  static constexpr int kParts = KSlices::kSliceBytes / (kPieces * 16);  // stages of a K slice
  static constexpr int kVectors = KSlices::kVectors / kParts;           // of a tile in a stage
  static constexpr int kTileBytes = kVectors * 512;
  static constexpr int kSteps = 4 / kParts;  // of a stage
  // A stage: tiles, their scales, rows.
  static constexpr int kTileScalesAt = kTiles * kTileBytes;
  static constexpr int kRowsAt = kTileScalesAt + kTiles * KSlices::kTileScaleBytes;
  static constexpr int kStageBytes = kRowsAt + kRows * kPieces * 16;
  // Scales of rows: one word has those of four K slices. They are read at the end of a K slice,
  // when the next copies to its stage's place are under way. So they have a ring of their own,
  // behind the stages, with one more place.
  static constexpr int kRowScaleBytes = KSlices::kQuantised ? kRows * 4 : 0;
  // A multiprocessor has 100 KB; the system reserves 1 KB for each block.
  static constexpr int kMostBytes = 100 * 1024 / kResident - 1024;
  static constexpr int kMostStages = (kMostBytes - kRowScaleBytes) / (kStageBytes + kRowScaleBytes);
  static constexpr int kStages = kMostStages < 8 ? kMostStages : 8;
  static constexpr int kRowScalesAt = kStages * kStageBytes;
  // Whether warps may be a stage apart. If so, each place of the ring has two mbarriers, behind
  // everything else, and there is no block barrier for each stage. This pays where a warp has much
  // work in a stage. docs/kernels.md (Tried without gain) lists the shapes where it does not.
  static constexpr bool kDrifts = KSlices::kQuantised && kCols >= 6;
  static constexpr int kMbarriersAt = kRowScalesAt + (kStages + 1) * kRowScaleBytes;
  static constexpr int64_t kSharedBytes = kMbarriersAt + (kDrifts ? 16 * kStages : 0);
  static_assert(kStages >= (kDrifts ? 3 : 2) && kSharedBytes <= kMostBytes);
};

// The place of piece `piece` within row `row`. Lanes 0 .. 3 of eight neighbouring rows read every
// other piece (e4m3) or four consecutive pieces (bf16); the swizzle avoids bank conflicts.
template <class KSlices>
__device__ __forceinline__ int PieceIn(int row, int piece) {
  return piece ^ (row & 1) * (KSlices::kQuantised ? 1 : 4);
}

// Sums of a warp: [tile][eight rows][element of the fragment].
template <class Shape>
using GemmSums = float[Shape::kTilesM][Shape::kCols][4];

// Computes items first, first + gridDim.x, .. All Shape::kThreads threads of a block call it.
// `shared` has Shape::kSharedBytes, aligned to 16 bytes. `Work` has:
// - kRun: 0, or the number of K slices of a run. The sum of each run is computed on its own and
//   then added to the sum of the runs before it.
// - int items(), int slices(): items of the launch; K slices of an item.
// - int64_t scale_bytes(): from a row to its scales.
// - Item At(int index): an item; Item::count is the number of its rows.
// - KSlices::Cursor Tile(item, int i): lane 0's cursor of the item's tile i.
// - const std::byte* rows(): the activations.
// - uint32_t Row(item, int i): the offset of the item's row i < count from rows(), in units of 16
//   bytes.
// - void Store(item, int first_tile, int first_row, sums): stores the sums of a warp, whose tiles
//   and rows begin at first_tile and first_row of the item and may end past the item's.
template <class Shape, class Work>
__device__ __forceinline__ void Gemm(const Work& work, int first, std::byte* shared) {
  using KSlices = typename Shape::KSlices;
  constexpr int kStages = Shape::kStages, kParts = Shape::kParts, kThreads = Shape::kThreads;
  constexpr int kTilesM = Shape::kTilesM, kCols = Shape::kCols;
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32, g = lane / 4,
            t = lane % 4;
  const int first_tile = warp % Shape::kWarpsM * kTilesM;
  const int first_row = warp / Shape::kWarpsM * (kCols * 8);
  const int items = work.items(), slices = work.slices(), stages = slices * kParts;

  // Of each stage, this thread copies 16-byte pieces of one tile and of some rows, a piece of the
  // tiles' scales, and the scales of one row.
  constexpr int kTilePieces = Shape::kTileBytes / 16;
  constexpr int kTileThreads = std::min(kThreads / Shape::kTiles, kTilePieces);
  constexpr int kTileCopies = kTilePieces / kTileThreads;
  constexpr bool kAllCopy = Shape::kTiles * kTileThreads == kThreads;
  static_assert(kTileCopies * kTileThreads == kTilePieces);
  constexpr int kAllRowPieces = Shape::kRows * Shape::kPieces;
  constexpr int kRowCopies = (kAllRowPieces + kThreads - 1) / kThreads;
  constexpr int kScalePieces = KSlices::kTileScaleBytes / 16;
  static_assert(Shape::kTiles * kScalePieces <= kThreads && Shape::kRows <= kThreads);
  const std::byte* const rows = work.rows();
  const std::byte *tile_from = nullptr, *tile_scales_from = nullptr;
  uint32_t row_from[kRowCopies] = {}, row_scales_from = 0;  // from `rows`, in pieces
  int load_item = first, load_stage = 0, load_slot = 0, load_count = 0;
  int load_scales = 0;  // the place in the ring of row scales
  // kDrifts: the parity of the phase of `empty` that ends when the place may be overwritten, and
  // the number of stages, from the current one on, whose copies have begun.
  uint32_t load_parity = 1;
  int ahead = 0;
  // kDrifts: two mbarriers for each place. All threads arrive at `full` when their copies to the
  // place are complete, and all warps at `empty` when they have read it.
  auto* const full = reinterpret_cast<uint64_t*>(shared + Shape::kMbarriersAt);
  uint64_t* const empty = full + kStages;
  const auto enter = [&] {
    const auto item = work.At(load_item);
    load_count = item.count;
    const int tile = min(thread / kTileThreads, Shape::kTiles - 1);
    tile_from =
        reinterpret_cast<const std::byte*>(work.Tile(item, tile).data) + thread % kTileThreads * 16;
#pragma unroll
    for (int i = 0; i < kRowCopies; ++i) {
      const int piece = i * kThreads + thread, row = piece / Shape::kPieces;
      if (row < load_count) row_from[i] = work.Row(item, row) + piece % Shape::kPieces;
    }
    if constexpr (kScalePieces > 0) {
      if (thread < Shape::kTiles * kScalePieces) {
        tile_scales_from =
            reinterpret_cast<const std::byte*>(work.Tile(item, thread / kScalePieces).scale) +
            thread % kScalePieces * 16;
      }
    }
    if constexpr (KSlices::kQuantised) {
      if (thread < load_count) {
        row_scales_from = work.Row(item, thread) + static_cast<uint32_t>(work.scale_bytes() / 16);
      }
    }
  };
  const auto load = [&] {
    if (load_item < items) {
      if constexpr (Shape::kDrifts) WaitForPhase(empty + load_slot, load_parity);
      std::byte* const to = shared + load_slot * Shape::kStageBytes;
      if (kAllCopy || thread < Shape::kTiles * kTileThreads) {
#pragma unroll
        for (int i = 0; i < kTileCopies; ++i) {
          const int at = (thread % kTileThreads + i * kTileThreads) * 16;
          CopyAsync16(to + thread / kTileThreads * Shape::kTileBytes + at,
                      tile_from + i * kTileThreads * 16);
        }
      }
      tile_from += Shape::kTileBytes;
#pragma unroll
      for (int i = 0; i < kRowCopies; ++i) {
        const int piece = i * kThreads + thread, row = piece / Shape::kPieces;
        if (row < load_count) {
          const int place = row * Shape::kPieces + PieceIn<KSlices>(row, piece % Shape::kPieces);
          CopyAsync16(to + Shape::kRowsAt + place * 16, rows + uint64_t{row_from[i]} * 16);
        }
        row_from[i] += Shape::kPieces;
      }
      if constexpr (kScalePieces > 0) {
        if (thread < Shape::kTiles * kScalePieces) {
          CopyAsync16(to + Shape::kTileScalesAt + thread * 16, tile_scales_from);
          tile_scales_from += KSlices::kTileScaleBytes;
        }
      }
      if constexpr (KSlices::kQuantised) {
        if (thread < load_count) {
          CopyAsync4(
              shared + Shape::kRowScalesAt + load_scales * Shape::kRowScaleBytes + thread * 4,
              rows + uint64_t{row_scales_from} * 16 + load_stage / 4 * 4);
        }
      }
      if constexpr (Shape::kDrifts) {
        ArriveAfterCopies(full + load_slot);
        ++ahead;
      }
      if (++load_stage == stages) {
        load_stage = 0;
        load_item += static_cast<int>(gridDim.x);
        if (load_item < items) enter();
      }
    }
    if constexpr (!Shape::kDrifts) CommitCopies();
    load_slot = load_slot + 1 == kStages ? 0 : load_slot + 1;
    if (Shape::kDrifts && load_slot == 0) load_parity ^= 1;
    if (KSlices::kQuantised) load_scales = load_scales == kStages ? 0 : load_scales + 1;
  };
  if (load_item >= items) return;
  if constexpr (Shape::kDrifts) {
    if (thread < kStages) {
      InitMbarrier(full + thread, kThreads);
      InitMbarrier(empty + thread, kThreads / 32);
    }
    __syncthreads();
  }
  enter();
#pragma unroll 1
  for (int s = 0; s < (Shape::kDrifts ? kStages - 1 : kStages); ++s) load();
  if constexpr (Shape::kDrifts) {
    WaitForPhase(full, 0);
  } else {
    WaitForCopies<kStages - 1>();
    __syncthreads();
  }

  // The offsets of this lane's operands in a stage: of its first tile, and of row g of its rows.
  const int tile_at = first_tile * Shape::kTileBytes + lane * 16;
  const int rows_at = Shape::kRowsAt + (first_row + g) * 128;
  uint4 tile_codes[kTilesM][KSlices::kTileVectors];  // of the next step
  uint4 column_codes[kCols];
  typename KSlices::TileScales next_tile_scales[kTilesM];
  int slot = 0, scales_slot = 0;
  uint32_t parity = 0;  // of the phase of `full` that completes the current stage
  const auto load_tiles = [&]<int kStep>(const std::byte* stage,
                                         std::integral_constant<int, kStep>) {
    if constexpr (kStep % KSlices::kTileSteps == 0) {
      constexpr int kVector = kStep / KSlices::kTileSteps * KSlices::kTileVectors;
#pragma unroll
      for (int m = 0; m < kTilesM; ++m) {
#pragma unroll
        for (int v = 0; v < KSlices::kTileVectors; ++v) {
          tile_codes[m][v] = *reinterpret_cast<const uint4*>(
              stage + tile_at + m * Shape::kTileBytes + (kVector + v) * 512);
        }
        if constexpr (kStep == 0) {
          next_tile_scales[m] = KSlices::TileScalesOf(stage + Shape::kTileScalesAt, first_tile + m);
        }
      }
    }
  };
  const auto load_columns = [&]<int kStep>(const std::byte* stage, int c,
                                           std::integral_constant<int, kStep>) {
    constexpr int kColumnSteps = KSlices::kQuantised ? 2 : 1;  // in 16 bytes
    if constexpr (kStep % kColumnSteps == 0) {
      constexpr int kLoad = kStep / kColumnSteps;
      const int piece = KSlices::kQuantised ? 2 * t + kLoad : 4 * kLoad + t;
      column_codes[c] = *reinterpret_cast<const uint4*>(stage + rows_at + c * 8 * 128 +
                                                        PieceIn<KSlices>(g, piece) * 16);
    }
  };
  load_tiles(shared, std::integral_constant<int, 0>());
#pragma unroll
  for (int c = 0; c < kCols; ++c) load_columns(shared, c, std::integral_constant<int, 0>());
#pragma unroll 1
  for (int index = first; index < items; index += static_cast<int>(gridDim.x)) {
    const auto item = work.At(index);
    GemmSums<Shape> sums = {}, products, of_run = {};
    typename KSlices::Cursor tiles[kTilesM];
    uint32_t next_scale[kTilesM] = {};
#pragma unroll
    for (int m = 0; m < kTilesM; ++m) {
      if constexpr (KSlices::kTileScale) {
        tiles[m] = work.Tile(item, first_tile + m);
        next_scale[m] = tiles[m].Scale(0);
      }
    }
#pragma unroll 1
    for (int slice = 0; slice < slices; ++slice) {
      uint32_t scale[kTilesM] = {}, column_scales[kCols] = {};
      typename KSlices::TileScales tile_scales[kTilesM];
#pragma unroll
      for (int m = 0; m < kTilesM; ++m) {
        tile_scales[m] = next_tile_scales[m];
        if constexpr (KSlices::kTileScale) {
          scale[m] = next_scale[m];
          if (slice + 1 < slices) next_scale[m] = tiles[m].Scale(slice + 1);
        }
      }
      const auto* const row_scales =
          reinterpret_cast<const uint32_t*>(shared + Shape::kRowScalesAt +
                                            scales_slot * Shape::kRowScaleBytes) +
          first_row;
      if constexpr (KSlices::kQuantised) {
        scales_slot = scales_slot == kStages ? 0 : scales_slot + 1;
        if constexpr (KSlices::kMmaScales) {
#pragma unroll
          for (int c = 0; c < kCols; ++c) {
            column_scales[c] = reinterpret_cast<const uint8_t*>(row_scales + c * 8 + g)[slice % 4];
          }
        }
      }
      const std::byte* stage = shared + slot * Shape::kStageBytes;
      const auto step = [&]<int kStep>(std::integral_constant<int, kStep>) {
        constexpr int kOfStage = kStep % Shape::kSteps;
        constexpr std::integral_constant<int, (kOfStage + 1) % Shape::kSteps> kNext;
        if constexpr (kOfStage == Shape::kSteps - 1) {
          // This warp has read the whole stage: from here on it loads operands of the next stage.
          // A new stage may be copied to the freed place; with kDrifts to the place of the stage
          // before, which slower warps have usually read by now.
          if constexpr (Shape::kDrifts) {
            load();
            __syncwarp();
            if (lane == 0) Arrive(empty + slot);
          }
          slot = slot + 1 == kStages ? 0 : slot + 1;
          stage = shared + slot * Shape::kStageBytes;
          if constexpr (Shape::kDrifts) {
            if (slot == 0) parity ^= 1;
            if (--ahead > 0) WaitForPhase(full + slot, parity);
          } else {
            WaitForCopies<kStages - 2>();
            __syncthreads();
            load();
          }
        }
        typename KSlices::Tile tiles_of_step[kTilesM];
#pragma unroll
        for (int m = 0; m < kTilesM; ++m) {
          tiles_of_step[m] =
              KSlices::template TileOf<kStep>(tile_codes[m], tile_scales[m], scale[m]);
        }
        load_tiles(stage, kNext);
        // 16 rows at a time, so that MMAs on the same sum are four apart.
        constexpr int kPair = kCols < 2 ? kCols : 2;
#pragma unroll
        for (int pair = 0; pair < kCols; pair += kPair) {
          float of_step[kTilesM][kPair][4];
          typename KSlices::Columns columns[kPair];
#pragma unroll
          for (int i = 0; i < kPair; ++i) {
            columns[i] = KSlices::template ColumnsOf<kStep>(column_codes[pair + i]);
          }
          const auto add = [&]<int kHalf>(std::integral_constant<int, kHalf>) {
#pragma unroll
            for (int i = 0; i < kPair; ++i) {
#pragma unroll
              for (int m = 0; m < kTilesM; ++m) {
                KSlices::template AddHalf<kStep, kHalf>(
                    tiles_of_step[m], columns[i], tile_scales[m], scale[m], column_scales[pair + i],
                    of_step[m][i], products[m][pair + i]);
              }
            }
          };
          add(std::integral_constant<int, 0>());
          add(std::integral_constant<int, 1>());
#pragma unroll
          for (int i = 0; i < kPair; ++i) {
            load_columns(stage, pair + i, kNext);
#pragma unroll
            for (int m = 0; m < kTilesM; ++m) {
              KSlices::template EndStep<kStep>(tile_scales[m], of_step[m][i],
                                               products[m][pair + i]);
            }
          }
        }
      };
      step(std::integral_constant<int, 0>());
      step(std::integral_constant<int, 1>());
      step(std::integral_constant<int, 2>());
      step(std::integral_constant<int, 3>());
#pragma unroll
      for (int c = 0; c < kCols; ++c) {
        ColumnValues columns;
        if constexpr (KSlices::kEndScales)
          columns = ColumnValues::Load(row_scales + c * 8, slice % 4);
#pragma unroll
        for (int m = 0; m < kTilesM; ++m) {
          auto& sum = Work::kRun > 0 ? of_run[m][c] : sums[m][c];
          KSlices::AddSlice(products[m][c], scale[m], columns, sum);
          if (Work::kRun > 0 && ((slice + 1) % Work::kRun == 0 || slice + 1 == slices)) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              sums[m][c][i] = __fadd_rn(sums[m][c][i], sum[i]);
              sum[i] = 0;
            }
          }
        }
      }
    }
    work.Store(item, first_tile, first_row, sums);
  }
  if constexpr (Shape::kDrifts) {
    __syncthreads();
    if (thread < kStages) {
      InvalidateMbarrier(full + thread);
      InvalidateMbarrier(empty + thread);
    }
  } else {
    WaitForCopies<0>();
  }
}

// Stores a warp's 16 outputs n of eight rows as bf16. All lanes call it.
// - sum: the lane's fragment.
// - row: the first of the 16 outputs of row g, aligned to eight bytes; null if there is no such
//   row. Lane 4 g + t writes four of them.
__device__ __forceinline__ void StoreBf16Tile(const float (&sum)[4], uint16_t* row) {
  const int t = threadIdx.x % 4;
  const uint32_t low = TransposedMatrix(Bf16x2(sum[0], sum[1]));
  const uint32_t high = TransposedMatrix(Bf16x2(sum[2], sum[3]));
  // Lane t has outputs 2 t and 2 t + 1 of each eight; neighbouring lanes exchange one pair, so that
  // each lane stores four consecutive outputs.
  const uint32_t other = __shfl_xor_sync(0xffffffffu, t % 2 == 0 ? high : low, 1);
  if (row == nullptr) return;
  uint16_t* const to = row + (t % 2 == 0 ? 2 * t : 8 + 2 * (t - 1));
  *reinterpret_cast<uint2*>(to) = t % 2 == 0 ? make_uint2(low, other) : make_uint2(other, high);
}

}  // namespace dsv4::sm12x
