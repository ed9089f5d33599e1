// SPDX-License-Identifier: Apache-2.0
// y[r, n] = sum over k of w[n, k] x[r, k] for packed weights and many rows, in the order of
// inner_product.cuh.
//
// A block keeps a ring of stages in shared memory: 128 bytes of each of its rows of activations and
// what they meet of its tiles of weights, brought by cp.async kStages - 1 stages ahead, over the
// ends of its items, too: blocks stay, and take one item (tiles of weights, rows) after the other.
// A warp has kTilesM tiles and kCols eights of rows, whose f32 sums stay in registers; the tiles
// are unpacked once for all its rows. Weights lie as MMAs want them (packed_layout.h), so that a
// lane's operand is one 16-byte load where ldmatrix would bring the same; pieces of 16 bytes of
// activations are swizzled, so that the eight lanes of a phase find theirs in all banks.
#pragma once

#include "kernels/sm12x/arch/fragments.cuh"
#include "kernels/sm12x/arch/memory.cuh"
#include "kernels/sm12x/bf16.cuh"
#include "kernels/sm12x/inner_product.cuh"
#include "kernels/sm12x/overlapped_launch.cuh"

namespace dsv4::sm12x {

// A warp's part of a block: kTilesM tiles of weights by kCols eights of rows; kWarpsM warps along
// the weights, kWarpsN along the rows. kResident: blocks of a multiprocessor of SM12x.
template <class KSlices_, int kTilesM_, int kCols_, int kWarpsM_, int kWarpsN_, int kResident_ = 1>
struct GemmShape {
  using KSlices = KSlices_;
  static constexpr int kTilesM = kTilesM_, kCols = kCols_, kWarpsM = kWarpsM_, kWarpsN = kWarpsN_;
  static constexpr int kResident = kResident_;
  static constexpr int kThreads = kWarpsM * kWarpsN * 32;
  static constexpr int kTiles = kWarpsM * kTilesM, kRows = kWarpsN * kCols * 8;
  static constexpr int kPieces = 8;  // of 16 bytes, of a row's part of a stage
  static constexpr int kParts = KSlices::kSliceBytes / (kPieces * 16);  // stages of a K slice
  static constexpr int kVectors = KSlices::kVectors / kParts;           // of a tile in a stage
  static constexpr int kTileBytes = kVectors * 512;
  // Where a stage has its parts: tiles, their scales, rows, their scales (a word has four K
  // slices').
  static constexpr int kTileScalesAt = kTiles * kTileBytes;
  static constexpr int kRowsAt = kTileScalesAt + kTiles * KSlices::kTileScaleBytes;
  static constexpr int kRowScalesAt = kRowsAt + kRows * kPieces * 16;
  static constexpr int kStageBytes = kRowScalesAt + (KSlices::kQuantised ? kRows * 4 : 0);
  // 100 KB a multiprocessor, of which each block takes one for itself.
  static constexpr int kMostBytes = 100 * 1024 / kResident - 1024;
  static constexpr int kStages = kMostBytes / kStageBytes < 8 ? kMostBytes / kStageBytes : 8;
  static constexpr int64_t kSharedBytes = int64_t{kStages} * kStageBytes;
  static_assert(kStages >= 2);
};

// Where a thread finds piece `piece` of row `row` in a stage. Lanes 0 .. 3 of eight neighbouring
// rows read every other piece (e4m3), or four in a row (bf16).
template <class KSlices>
__device__ __forceinline__ int PieceOffset(int row, int piece) {
  return row * 128 + (piece ^ (row & 1) * (KSlices::kQuantised ? 1 : 4)) * 16;
}

// Sums of a warp: [tile][eight rows][fragment].
template <class Shape>
using GemmSums = float[Shape::kTilesM][Shape::kCols][4];

// Goes through items blockIdx.x, blockIdx.x + gridDim.x, ..; a block of Shape::kThreads calls it
// with `shared`, Shape::kSharedBytes at a multiple of 16. Of `Work`:
//   kRun                                          0, or of so many K slices in a row the sums are
//                                                 added up apart, and then added to the others
//   int items(), K slices(); int64_t scale_bytes()  from a row to its scales
//   Item At(int item)                             Item has `count`, its rows
//   KSlices::Cursor Tile(item, int i)              of the item's tile i, for lane 0
//   const std::byte* Row(item, int i)             row i below count
//   void Store(item, int first_tile, int first_row, sums)  a warp's sums: of tiles first_tile ..
//                                                 and rows first_row .., where there are any
template <class Shape, class Work>
__device__ __forceinline__ void Gemm(const Work& work, std::byte* shared) {
  using KSlices = typename Shape::KSlices;
  constexpr int kStages = Shape::kStages, kParts = Shape::kParts, kThreads = Shape::kThreads;
  constexpr int kTilesM = Shape::kTilesM, kCols = Shape::kCols;
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32, g = lane / 4,
            t = lane % 4;
  const int first_tile = warp % Shape::kWarpsM * kTilesM;
  const int first_row = warp / Shape::kWarpsM * (kCols * 8);
  const int items = work.items(), slices = work.slices(), stages = slices * kParts;

  // What this thread copies of each stage.
  constexpr int kTilePieces = Shape::kTileBytes / 16;
  constexpr int kAllTilePieces = Shape::kTiles * kTilePieces;
  constexpr int kWeightCopies = (kAllTilePieces + kThreads - 1) / kThreads;
  constexpr int kAllRowPieces = Shape::kRows * Shape::kPieces;
  constexpr int kRowCopies = (kAllRowPieces + kThreads - 1) / kThreads;
  constexpr int kScalePieces = KSlices::kTileScaleBytes / 16;
  static_assert(Shape::kTiles * kScalePieces <= kThreads && Shape::kRows <= kThreads);
  const std::byte *weight_from[kWeightCopies], *row_from[kRowCopies];
  const std::byte *tile_scales_from = nullptr, *row_scales_from = nullptr;
  int load_item = static_cast<int>(blockIdx.x), load_stage = 0, load_slot = 0, load_count = 0;
  const auto enter = [&] {
    const auto item = work.At(load_item);
    load_count = item.count;
#pragma unroll
    for (int i = 0; i < kWeightCopies; ++i) {
      const int piece = i * kThreads + thread;
      if (kAllTilePieces % kThreads != 0 && piece >= kAllTilePieces) break;
      weight_from[i] =
          reinterpret_cast<const std::byte*>(work.Tile(item, piece / kTilePieces).data) +
          piece % kTilePieces * 16;
    }
#pragma unroll
    for (int i = 0; i < kRowCopies; ++i) {
      const int piece = i * kThreads + thread, row = piece / Shape::kPieces;
      if (row < load_count) row_from[i] = work.Row(item, row) + piece % Shape::kPieces * 16;
    }
    if constexpr (kScalePieces > 0) {
      if (thread < Shape::kTiles * kScalePieces) {
        tile_scales_from =
            reinterpret_cast<const std::byte*>(work.Tile(item, thread / kScalePieces).scale) +
            thread % kScalePieces * 16;
      }
    }
    if constexpr (KSlices::kQuantised) {
      if (thread < load_count) row_scales_from = work.Row(item, thread) + work.scale_bytes();
    }
  };
  const auto load = [&] {
    if (load_item < items) {
      std::byte* const to = shared + load_slot * Shape::kStageBytes;
#pragma unroll
      for (int i = 0; i < kWeightCopies; ++i) {
        const int piece = i * kThreads + thread;
        if (kAllTilePieces % kThreads != 0 && piece >= kAllTilePieces) break;
        CopyAsync16(to + piece * 16, weight_from[i] + int64_t{load_stage} * Shape::kTileBytes);
      }
#pragma unroll
      for (int i = 0; i < kRowCopies; ++i) {
        const int piece = i * kThreads + thread, row = piece / Shape::kPieces;
        if (row < load_count) {
          CopyAsync16(to + Shape::kRowsAt + PieceOffset<KSlices>(row, piece % Shape::kPieces),
                      row_from[i] + int64_t{load_stage} * (Shape::kPieces * 16));
        }
      }
      if constexpr (kScalePieces > 0) {
        if (thread < Shape::kTiles * kScalePieces) {
          CopyAsync16(to + Shape::kTileScalesAt + thread * 16,
                      tile_scales_from + int64_t{load_stage} * KSlices::kTileScaleBytes);
        }
      }
      if constexpr (KSlices::kQuantised) {
        if (thread < load_count) {
          CopyAsync4(to + Shape::kRowScalesAt + thread * 4, row_scales_from + load_stage / 4 * 4);
        }
      }
      if (++load_stage == stages) {
        load_stage = 0;
        load_item += static_cast<int>(gridDim.x);
        if (load_item < items) enter();
      }
    }
    CommitCopies();
    load_slot = load_slot + 1 == kStages ? 0 : load_slot + 1;
  };
  if (load_item < items) enter();
#pragma unroll 1
  for (int s = 0; s < kStages - 1; ++s) load();

  int slot = 0;
#pragma unroll 1
  for (int index = static_cast<int>(blockIdx.x); index < items;
       index += static_cast<int>(gridDim.x)) {
    const auto item = work.At(index);
    const int cols = min(max((item.count - first_row + 7) / 8, 0), kCols);
    GemmSums<Shape> sums = {}, products = {}, of_run = {};
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
      uint32_t scale[kTilesM] = {};
      if constexpr (KSlices::kTileScale) {
#pragma unroll
        for (int m = 0; m < kTilesM; ++m) {
          scale[m] = next_scale[m];
          if (slice + 1 < slices) next_scale[m] = tiles[m].Scale(slice + 1);
        }
      }
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        WaitForCopies<kStages - 2>();
        __syncthreads();
        load();
        const std::byte* const stage = shared + slot * Shape::kStageBytes;
        slot = slot + 1 == kStages ? 0 : slot + 1;
        if (cols == 0) continue;
        typename KSlices::Held held[kTilesM];
#pragma unroll
        for (int m = 0; m < kTilesM; ++m) {
          uint4 codes[Shape::kVectors];
          const int tile = first_tile + m;
#pragma unroll
          for (int v = 0; v < Shape::kVectors; ++v) {
            codes[v] = *reinterpret_cast<const uint4*>(stage + tile * Shape::kTileBytes + v * 512 +
                                                       lane * 16);
          }
          held[m] = KSlices::Hold(codes, stage + Shape::kTileScalesAt, tile, scale[m]);
        }
        // Two at a time, which the compiler may mix.
        constexpr int kPair = kCols < 2 ? kCols : 2;
#pragma unroll
        for (int pair = 0; pair < kCols; pair += kPair) {
          if (pair >= cols) break;
#pragma unroll
          for (int c = pair; c < pair + kPair; ++c) {
            const std::byte* const rows = stage + Shape::kRowsAt + (first_row + c * 8) * 128;
            uint32_t b[8];
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              const int piece = KSlices::kQuantised ? 2 * t + i : 4 * i + t;
              const uint4 v =
                  *reinterpret_cast<const uint4*>(rows + PieceOffset<KSlices>(g, piece));
              b[4 * i] = v.x;
              b[4 * i + 1] = v.y;
              b[4 * i + 2] = v.z;
              b[4 * i + 3] = v.w;
            }
            if constexpr (KSlices::kQuantised) {
              const ReadyActs acts = Ready(b);
              const auto scales = KSlices::Columns::Load(
                  reinterpret_cast<const uint8_t*>(stage + Shape::kRowScalesAt) +
                      (first_row + c * 8) * 4 + slice % 4,
                  4);
#pragma unroll
              for (int m = 0; m < kTilesM; ++m) AddSlice(held[m], acts, scales, sums[m][c]);
            } else {
#pragma unroll
              for (int m = 0; m < kTilesM; ++m) AddProduct(held[m], b, products[m][c]);
            }
          }
        }
      }
      if constexpr (!KSlices::kQuantised) {
#pragma unroll
        for (int m = 0; m < kTilesM; ++m) {
          const float factor = KSlices::Factor(scale[m]);
#pragma unroll
          for (int c = 0; c < kCols; ++c) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              float* const sum = Work::kRun > 0 ? &of_run[m][c][i] : &sums[m][c][i];
              *sum = __fmaf_rn(products[m][c][i], factor, *sum);
              products[m][c][i] = 0;
              if (Work::kRun > 0 && ((slice + 1) % Work::kRun == 0 || slice + 1 == slices)) {
                sums[m][c][i] = __fadd_rn(sums[m][c][i], *sum);
                *sum = 0;
              }
            }
          }
        }
      }
    }
    if (cols > 0) work.Store(item, first_tile, first_row, sums);
  }
  WaitForCopies<0>();
}

// What a warp has of 16 outputs n of eight rows, `sum`: as bf16, to y_of(row) + 0 .. 15, for rows
// below `count`; lane 4 g + t writes four of row g, at a multiple of eight bytes. All lanes call
// it.
template <class OutputOf>
__device__ __forceinline__ void StoreBf16Tile(const float (&sum)[4], int count,
                                              OutputOf&& output_of) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const uint32_t low = TransposedMatrix(Bf16x2(sum[0], sum[1]));
  const uint32_t high = TransposedMatrix(Bf16x2(sum[2], sum[3]));
  // Lane t has 2 t and 2 t + 1 of each eight: neighbours change one of them.
  const uint32_t other = __shfl_xor_sync(0xffffffffu, t % 2 == 0 ? high : low, 1);
  if (g >= count) return;
  uint16_t* const to = output_of(g) + (t % 2 == 0 ? 2 * t : 8 + 2 * (t - 1));
  *reinterpret_cast<uint2*>(to) = t % 2 == 0 ? make_uint2(low, other) : make_uint2(other, high);
}

}  // namespace dsv4::sm12x
