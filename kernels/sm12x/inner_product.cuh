// SPDX-License-Identifier: Apache-2.0
// y[r, n] = sum over k of w[n, k] x[r, k] for packed weights: the one order of additions of all
// matrix operators, and two ways to go through it that agree bit for bit.
//
// Order: the product of a chain (128 elements of K) is the sum of its four steps, in f32 where both
// factors have few bits, so that the sums are mostly exact, else a TwoFloat; the chains' products
// are added in ascending order in a TwoFloat, so that what is rounded afterwards has hardly any
// noise of its own (docs/adr/0009).
//
// SplitProducts, for few rows: the warps of a block share out K. A warp streams its part of one
// tile after the other through registers, far ahead of its use, and takes eight rows after the
// other past it. Activations come as fragments from L1 or shared memory; chain products meet in
// shared memory. TiledProducts, for many: a warp goes along K with one tile (or one of each matrix)
// and several eights of rows, which the block stages in shared memory.
#pragma once

#include <type_traits>

#include "kernels/sm12x/arch/memory.cuh"
#include "kernels/sm12x/arch/mma.cuh"
#include "kernels/sm12x/arch/threads.cuh"
#include "kernels/sm12x/packed_layout.h"
#include "kernels/sm12x/two_float.cuh"
#include "lib/tensor/quant_format.h"

namespace dsv4::sm12x {

// How a weight format is read: its packed chains, the operand that MMAs want, and the activations
// it multiplies: kBWords words a lane and chain, kChainBytes bytes a row and chain. A cursor is a
// lane's into a tile; lane 0's asks for chains to be brought to L2.
struct Fp8Chains {
  using Weight = Fp8Weight;
  using Operand = Fp8Operand;
  using Sum = float;
  static constexpr bool kQuantised = true;
  static constexpr int kVectors = 4, kBWords = 8, kChainBytes = 128;
  struct Raw {
    uint4 data[kVectors];
    uint32_t scale;
    __device__ __forceinline__ Operand Widened() const { return {data, scale}; }
  };
  struct Cursor {
    const uint8_t* data;
    const uint8_t* scale;
    Cursor() = default;
    __device__ __forceinline__ Cursor(const Weight& w, int64_t tile, int lane)
        : data(w.data + tile * kTileRows * w.k + lane * 16),
          scale(w.scale + tile * kTileRows / kFp8Block * (w.k / kChain)) {}
    __device__ __forceinline__ uint32_t Scale(int chain) const { return __ldg(scale + chain); }
    __device__ __forceinline__ void Prefetch(int chain, int count) const {
      PrefetchBulk(data + int64_t{chain} * kFp8ChainBytes, count * kFp8ChainBytes);
    }
    __device__ __forceinline__ void Load(int chain, Raw* raw) const {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        raw->data[i] = LoadOnce(data + int64_t{chain} * kFp8ChainBytes + i * 512);
      }
      raw->scale = Scale(chain);
    }
  };
};

struct Fp4Chains {
  using Weight = Fp4Weight;
  using Operand = Fp4Operand;
  using Sum = float;
  static constexpr bool kQuantised = true;
  static constexpr int kVectors = 2, kBWords = 8, kChainBytes = 128;
  struct Raw {
    uint4 data[kVectors];
    Fp4Scales scale;
    __device__ __forceinline__ Operand Widened() const { return {data, scale}; }
  };
  struct Cursor {
    const uint8_t* data;
    const uint32_t* scale;
    Cursor() = default;
    __device__ __forceinline__ Cursor(const Weight& w, int64_t tile, int lane)
        : data(w.data + tile * kTileRows * w.k / 2 + lane * 16),
          scale(reinterpret_cast<const uint32_t*>(w.scale) + tile * kTileRows * (w.k / kChain) +
                Fp4ScaleWord(lane)) {}
    __device__ __forceinline__ Fp4Scales Scale(int chain) const {
      return __ldg(reinterpret_cast<const Fp4Scales*>(scale + chain * kTileRows));
    }
    __device__ __forceinline__ void Prefetch(int chain, int count) const {
      PrefetchBulk(data + int64_t{chain} * kFp4ChainBytes, count * kFp4ChainBytes);
    }
    __device__ __forceinline__ void Load(int chain, Raw* raw) const {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        raw->data[i] = LoadOnce(data + int64_t{chain} * kFp4ChainBytes + i * 512);
      }
      raw->scale = Scale(chain);
    }
  };
};

struct Bf16Chains {
  using Weight = Bf16Weight;
  using Operand = Bf16Operand;
  using Sum = TwoFloat;
  static constexpr bool kQuantised = false;
  static constexpr int kVectors = 8, kBWords = 16, kChainBytes = 256;
  struct Raw {
    uint4 data[kVectors];
    uint32_t scale;  // none
    __device__ __forceinline__ Operand Widened() const { return {data}; }
  };
  struct Cursor {
    const std::byte* data;
    Cursor() = default;
    __device__ __forceinline__ Cursor(const Weight& w, int64_t tile, int lane)
        : data(reinterpret_cast<const std::byte*>(w.data + tile * kTileRows * w.k) + lane * 16) {}
    __device__ __forceinline__ uint32_t Scale(int) const { return 0; }
    __device__ __forceinline__ void Prefetch(int chain, int count) const {
      PrefetchBulk(data + int64_t{chain} * kBf16ChainBytes, count * kBf16ChainBytes);
    }
    __device__ __forceinline__ void Load(int chain, Raw* raw) const {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        raw->data[i] = LoadOnce(data + int64_t{chain} * kBf16ChainBytes + i * 512);
      }
    }
  };
};

// An fp8 weight with activations that are not quantised.
struct Fp8WidenedChains {
  using Weight = Fp8Weight;
  using Operand = Fp8WidenedOperand;
  using Sum = TwoFloat;
  static constexpr bool kQuantised = false;
  static constexpr int kVectors = 4, kBWords = 16, kChainBytes = 256;
  struct Raw : Fp8Chains::Raw {
    __device__ __forceinline__ Operand Widened() const { return {data, scale}; }
  };
  using Cursor = Fp8Chains::Cursor;
};

// The fragments of one lane from chain `chain` of its activation row. Lanes 0 .. 3 of a row read
// 128 bytes of e4m3 as 32 each, or 256 bytes of bf16 as 16 of each 64.
template <class Chains>
__device__ __forceinline__ void LoadActs(const std::byte* chain_of_row, int t,
                                         uint32_t (&b)[Chains::kBWords]) {
  constexpr int kStep = Chains::kQuantised ? 16 : 64, kLane = Chains::kQuantised ? 32 : 16;
#pragma unroll
  for (int i = 0; i < Chains::kBWords / 4; ++i) {
    const std::byte* from = chain_of_row + t * kLane + i * kStep;
    const uint4 v = *reinterpret_cast<const uint4*>(from);
    b[4 * i] = v.x;
    b[4 * i + 1] = v.y;
    b[4 * i + 2] = v.z;
    b[4 * i + 3] = v.w;
  }
}

template <class Chains, class Operand>
__device__ __forceinline__ void Product(const Operand& w, const uint32_t (&b)[Chains::kBWords],
                                        uint32_t act_scale, typename Chains::Sum (&sum)[4]) {
  if constexpr (Chains::kQuantised) {
    ChainProduct<false>(w, Ready(b), act_scale, sum);
  } else {
    ChainProduct(w, b, sum);
  }
}

// ---- few rows ----

inline constexpr int kSplitWarps = 8;
inline constexpr int kSplitThreads = kSplitWarps * 32;
inline constexpr int kSplitRows = 8;  // activation rows of one product
// Products of a chain in shared memory: eight rows of 16, padded against bank conflicts.
inline constexpr int kProductStride = 20;
inline constexpr int kProductPlane = kSplitRows * kProductStride;
// The lower parts of TwoFloats behind the upper.
template <class Chains>
inline constexpr int kProductFloats =
    kProductPlane* int{sizeof(typename Chains::Sum) / sizeof(float)};

// How the warps of a block share out a weight of `chains` chains: 2^shift warps a tile.
struct SplitPlan {
  int chains, shift;
  int warps = kSplitWarps;
  int cols = 1;        // eights of activation rows of one pass
  bool ahead = false;  // whether each warp asks for all of its first tile at once
  constexpr int threads() const { return warps * 32; }
  constexpr int tiles() const { return warps >> shift; }  // of a block
  constexpr int Slot(int warp) const { return warp >> shift; }
  constexpr int Split(int warp) const { return warp & ((1 << shift) - 1); }
  constexpr int First(int split) const { return chains * split >> shift; }
  constexpr int rows() const { return cols * kSplitRows; }  // of one pass
  // Floats of a tile's products of kMatrices weights.
  template <class Chains, int kMatrices>
  constexpr int64_t tile_floats() const {
    return int64_t{chains} * kMatrices * cols * kProductFloats<Chains>;
  }
  template <class Chains, int kMatrices>
  constexpr int64_t shared_bytes() const {
    return tiles() * tile_floats<Chains, kMatrices>() * int64_t{sizeof(float)};
  }
};
// A warp gets about four chains of K, or all that there is to share out.
constexpr SplitPlan SplitPlanOf(int64_t k) {
  const int chains = static_cast<int>(k / kChain);
  int shift = 0;
  while (1 << shift < kSplitWarps && 4 << shift < chains) ++shift;
  return {chains, shift};
}
// Shared memory of a block of SM12x.
inline constexpr int64_t kMaxSharedBytes = 99 * 1024;
// The same for a launch of `tiles` tiles and `rows` rows: so few tiles that they leave
// multiprocessors idle have twice the warps each, and as many rows pass each weight as there is
// shared memory for their products.
inline constexpr int kMaxSplitWarps = 16;
template <class Chains>
constexpr SplitPlan SplitPlanOf(int64_t k, int64_t tiles, int64_t rows) {
  constexpr int64_t kFewTiles = 128;
  SplitPlan plan = SplitPlanOf(k);
  if (1 << plan.shift == kSplitWarps && tiles <= kFewTiles) {
    ++plan.shift;
    plan.warps = kMaxSplitWarps;
  }
  const int64_t wanted = (rows + kSplitRows - 1) / kSplitRows;
  const int64_t fit = (kMaxSharedBytes - 4096) / plan.shared_bytes<Chains, 1>();
  plan.cols = static_cast<int>(fit < 1 ? 1 : wanted < fit ? wanted : fit);
  // A weight so small that its launch is over when the memory has got up to speed.
  constexpr int64_t kSmallBytes = 10 << 20;
  plan.ahead = tiles * plan.chains * Chains::kVectors * 512 <= kSmallBytes;
  return plan;
}

// How many of `sets` sets of tiles a block takes one after the other: several, where that leaves
// `blocks` of them.
constexpr int SplitSteps(int64_t sets, int64_t blocks) {
  const int64_t steps = (sets + blocks - 1) / blocks;
  return static_cast<int>(steps < 1 ? 1 : steps > 8 ? 8 : steps);
}

// How many of its `steps` tiles from `tile` on a warp has.
__device__ __forceinline__ int LiveSteps(int64_t tile, int64_t tiles, const SplitPlan& plan,
                                         int steps) {
  int live = 0;
  while (live < steps && tile + live * plan.tiles() < tiles) ++live;
  return live;
}

template <class Chains, int kMatrices>
constexpr bool SplitFits(int64_t k) {
  return SplitPlanOf(k).shared_bytes<Chains, kMatrices>() <= kMaxSharedBytes - 4096;
}

__device__ __forceinline__ void StoreProduct(float value, float* to) { *to = value; }
__device__ __forceinline__ void StoreProduct(TwoFloat value, float* to) {
  to[0] = value.hi;
  to[kProductPlane] = value.lo;
}

// The chain products of one tile after the other of each of kMatrices weights with `count` rows of
// activations, plan.rows() a pass. A block calls it with all its threads. Its warps go through
// `steps` tiles, of which the first `live_steps` are there for this warp: `cursor_of(step,
// matrix)`; and of a tile through chains [first, end), kHeld of which are held or under way at any
// time, over the ends of tiles. kManyCols: plan.cols may be above 1. For each pass of each tile
// calls `prepare(step, base)`; `row_of(row)` for the memory of activation row `row`, with scales
// `scale_bytes` behind it where quantised; writes products[((chain * kMatrices + matrix) * cols +
// col) * kProductFloats + row % 8 * kProductStride + tile row] of this warp's tile, col: of the
// row's eight; then, between barriers, `finish(step, base)`.
template <class Chains, int kMatrices, int kHeld, bool kManyCols, class CursorOf, class Prepare,
          class RowOf, class Finish>
__device__ __forceinline__ void SplitProducts(const SplitPlan& plan, int steps, int live_steps,
                                              int first, int end, int count, int64_t scale_bytes,
                                              float* products, CursorOf&& cursor_of,
                                              Prepare&& prepare, RowOf&& row_of, Finish&& finish) {
  using Cursor = typename Chains::Cursor;
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  typename Chains::Raw held[kHeld][kMatrices];
  Cursor ahead[kMatrices];  // where the next loads are from
#pragma unroll
  for (int m = 0; m < kMatrices; ++m) ahead[m] = cursor_of(0, m);
  if (plan.ahead && live_steps > 0 && first < end && lane == 0) {
#pragma unroll
    for (int m = 0; m < kMatrices; ++m) ahead[m].Prefetch(first, end - first);
  }
  if (live_steps > 0) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (first + i >= end) break;
#pragma unroll
      for (int m = 0; m < kMatrices; ++m) ahead[m].Load(first + i, &held[i][m]);
    }
  }
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
#pragma unroll 1
    for (int base = 0; base < count; base += plan.rows()) {
      prepare(step, base);
      const std::byte* row = row_of(min(base + g, count - 1));
#pragma unroll 1
      for (int group = first; group < end && step < live_steps; group += kHeld) {
        // The chains that the next turn takes: of this tile, the same again, or of the next.
        int next = group + kHeld;
        bool load = true;
        if (next >= end) {
          next = first;
          if (base + plan.rows() < count) {
            load = group != first;
          } else {
            load = step + 1 < live_steps;
            if (load) {
#pragma unroll
              for (int m = 0; m < kMatrices; ++m) ahead[m] = cursor_of(step + 1, m);
            }
          }
        }
#pragma unroll
        for (int i = 0; i < kHeld; ++i) {
          const int chain = group + i;
          if (chain < end) {
            const int cols =
                kManyCols ? min(plan.cols, (count - base + kSplitRows - 1) / kSplitRows) : 1;
#pragma unroll 1
            for (int c = 0; c < cols; ++c) {
              if constexpr (kManyCols) {
                row = row_of(min(base + c * kSplitRows + g, count - 1));
                // What operands are made into is made again: there are no registers to keep it.
#pragma unroll
                for (int m = 0; m < kMatrices; ++m) {
#pragma unroll
                  for (int v = 0; v < Chains::kVectors; ++v) Forget(&held[i][m].data[v]);
                }
              }
              uint32_t b[Chains::kBWords], scale = 0;
              LoadActs<Chains>(row + chain * Chains::kChainBytes, t, b);
              if constexpr (Chains::kQuantised) {
                scale = *reinterpret_cast<const uint8_t*>(row + scale_bytes + chain);
              }
#pragma unroll
              for (int m = 0; m < kMatrices; ++m) {
                typename Chains::Sum sum[4];
                Product<Chains>(held[i][m].Widened(), b, scale, sum);
                float* to = products +
                            ((chain * kMatrices + m) * plan.cols + c) * kProductFloats<Chains> +
                            2 * t * kProductStride + g;
                StoreProduct(sum[0], to);
                StoreProduct(sum[1], to + kProductStride);
                StoreProduct(sum[2], to + 8);
                StoreProduct(sum[3], to + kProductStride + 8);
              }
            }
          }
          if (load && next + i < end) {
#pragma unroll
            for (int m = 0; m < kMatrices; ++m) {
              ahead[m].Load(next + i, &held[i][m]);
            }
          }
        }
      }
      __syncthreads();
      finish(step, base);
      __syncthreads();
    }
  }
}

// The sum of the products that SplitProducts left of one matrix for row `row` of its pass and row
// `tile_row` of the tile.
template <class Chains, int kMatrices>
__device__ __forceinline__ float SplitSum(const float* products, const SplitPlan& plan, int matrix,
                                          int row, int tile_row) {
  const float* from = products + (matrix * plan.cols + row / kSplitRows) * kProductFloats<Chains> +
                      row % kSplitRows * kProductStride + tile_row;
  TwoFloat sum;
#pragma unroll 4
  for (int c = 0; c < plan.chains; ++c, from += kMatrices * plan.cols * kProductFloats<Chains>) {
    if constexpr (std::is_same_v<typename Chains::Sum, float>) {
      sum.Add(*from);
    } else {
      sum.Add(TwoFloat{from[0], from[kProductPlane]});
    }
  }
  return sum.Rounded();
}

// ---- many rows ----

// A block's shape: kWarpsM warps along the weight's tiles, kWarpsN along rows of activations, each
// with kCols eights of them; stages of one chain of both in shared memory, as many as fit.
template <class Chains>
struct TiledShape {
  static constexpr int kWarpsM = 4, kWarpsN = Chains::kQuantised ? 4 : 2, kCols = 4;
  static constexpr int kThreads = kWarpsM * kWarpsN * 32;
  static constexpr int kRows = kWarpsN * kCols * 8;
  static constexpr int kWeightRows = kWarpsM * kTileRows;
  // A row's chain and padding that spreads the lanes' 16-byte reads over all banks.
  static constexpr int kRowBytes = Chains::kChainBytes + (Chains::kQuantised ? 16 : 64);
  static constexpr int kTileBytes = Chains::kVectors * 512;
  static constexpr int kActBytes = kRows * kRowBytes;
  static constexpr int kStageBytes = kActBytes + kWarpsM * kTileBytes;
  static constexpr int kStages = kStageBytes * 4 <= 90 * 1024   ? 4
                                 : kStageBytes * 3 <= 90 * 1024 ? 3
                                                                : 2;
  // Stages, then the activations' scales of all chains, [row][chain].
  static constexpr int64_t SharedBytes(int64_t k) {
    return kStageBytes * kStages + (Chains::kQuantised ? (k / kChain + 3) / 4 * 4 * kRows : 0);
  }
  static constexpr bool Fits(int64_t k) { return SharedBytes(k) <= kMaxSharedBytes - 1024; }
};

// The sums of kWarpsM tiles of `chains` chains with kRows rows, `count` of which are live. A block
// of Shape::kThreads calls it. `cursor_of(warp, lane)` is a lane's into the tile of warp `warp` of
// kWarpsM, or into any tile where that one is not there; `live`: whether this warp's is. `row_of`
// as for SplitProducts; called with rows below `count` only. Calls store(row, tile_row, sum, other)
// for each output of live warps and rows; kPaired: of the first half of kWarpsM alone, with `other`
// the sum of the same output of the tile of warp + kWarpsM / 2. `shared` has Shape::SharedBytes at
// a 16-byte boundary.
template <class Chains, bool kPaired, class CursorOf, class RowOf, class Store>
__device__ __forceinline__ void TiledProducts(int chains, bool live, int count, int64_t scale_bytes,
                                              std::byte* shared, CursorOf&& cursor_of,
                                              RowOf&& row_of, Store&& store) {
  using Shape = TiledShape<Chains>;
  constexpr int kStages = Shape::kStages, kCols = Shape::kCols;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int warp_m = warp % Shape::kWarpsM, first_col = warp / Shape::kWarpsM * (kCols * 8);
  const int scale_stride = (chains + 3) / 4 * 4;
  uint8_t* scales = reinterpret_cast<uint8_t*>(shared + kStages * Shape::kStageBytes);

  // What this thread copies of each stage: pieces of 16 bytes.
  constexpr int kRowPieces = Chains::kChainBytes / 16;
  constexpr int kActPieces = Shape::kRows * kRowPieces / Shape::kThreads;
  constexpr int kAllWeightPieces = Shape::kWarpsM * Shape::kTileBytes / 16;
  constexpr int kWeightPieces = (kAllWeightPieces + Shape::kThreads - 1) / Shape::kThreads;
  const std::byte* act_from[kActPieces];
  const std::byte* weight_from[kWeightPieces];
#pragma unroll
  for (int i = 0; i < kActPieces; ++i) {
    const int piece = i * Shape::kThreads + threadIdx.x;
    act_from[i] = row_of(min(piece / kRowPieces, count - 1)) + piece % kRowPieces * 16;
  }
#pragma unroll
  for (int i = 0; i < kWeightPieces; ++i) {
    const int piece = i * Shape::kThreads + threadIdx.x;
    const int tile = piece / (Chains::kVectors * 32), vector = piece / 32 % Chains::kVectors;
    if (piece < kAllWeightPieces) {
      weight_from[i] =
          reinterpret_cast<const std::byte*>(cursor_of(tile, lane).data) + vector * 512;
    }
  }
  const auto stage = [&](int chain) {
    if (chain < chains) {
      std::byte* to = shared + chain % kStages * Shape::kStageBytes;
#pragma unroll
      for (int i = 0; i < kActPieces; ++i) {
        // Rows that are not there would all be copies of one: a crowd at one place of L2.
        const int piece = i * Shape::kThreads + threadIdx.x, row = piece / kRowPieces;
        if (row < count) {
          CopyAsync16(to + row * Shape::kRowBytes + piece % kRowPieces * 16,
                      act_from[i] + int64_t{chain} * Chains::kChainBytes);
        }
      }
#pragma unroll
      for (int i = 0; i < kWeightPieces; ++i) {
        const int piece = i * Shape::kThreads + threadIdx.x;
        if (piece < kAllWeightPieces) {
          CopyAsync16(to + Shape::kActBytes + piece * 16,
                      weight_from[i] + int64_t{chain} * Shape::kTileBytes);
        }
      }
    }
    CommitCopies();
  };
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) stage(s);
  if constexpr (Chains::kQuantised) {
    for (int i = threadIdx.x; i < count * chains; i += Shape::kThreads) {
      const int row = i / chains, chain = i % chains;
      scales[row * scale_stride + chain] =
          *reinterpret_cast<const uint8_t*>(row_of(row) + scale_bytes + chain);
    }
  }

  const bool busy = live && first_col < count;
  const typename Chains::Cursor cursor = cursor_of(warp_m, lane);
  auto weight_scale = cursor.Scale(0);  // of the next chain
  TwoFloat sums[kCols][4];
  for (int chain = 0; chain < chains; ++chain) {
    WaitForCopies<kStages - 2>();
    __syncthreads();
    stage(chain + kStages - 1);
    if (!busy) continue;
    const std::byte* acts = shared + chain % kStages * Shape::kStageBytes;
    const std::byte* tile = acts + Shape::kActBytes + warp_m * Shape::kTileBytes + lane * 16;
    typename Chains::Raw raw;
#pragma unroll
    for (int v = 0; v < Chains::kVectors; ++v) {
      raw.data[v] = *reinterpret_cast<const uint4*>(tile + v * 512);
    }
    raw.scale = weight_scale;
    if (chain + 1 < chains) weight_scale = cursor.Scale(chain + 1);
    const auto operand = raw.Widened();
#pragma unroll
    for (int c = 0; c < kCols; ++c) {
      const int col = first_col + c * 8;
      if (col >= count) break;
      uint32_t b[Chains::kBWords];
      LoadActs<Chains>(acts + (col + g) * Shape::kRowBytes, t, b);
      uint32_t scale = 0;
      if constexpr (Chains::kQuantised) scale = scales[(col + g) * scale_stride + chain];
      typename Chains::Sum sum[4];
      Product<Chains>(operand, b, scale, sum);
#pragma unroll
      for (int v = 0; v < 4; ++v) sums[c][v].Add(sum[v]);
    }
  }
  WaitForCopies<0>();

  // Sums of the second half of the tiles, [tile][row][tile row], where the stages were.
  constexpr int kStride = kProductStride, kHalf = Shape::kWarpsM / 2;
  float* others = reinterpret_cast<float*>(shared) + warp_m % kHalf * (Shape::kRows * kStride);
  static_assert(!kPaired || kHalf * Shape::kRows * kStride * int{sizeof(float)} <=
                                kStages * Shape::kStageBytes);
  const bool second = warp_m >= kHalf;
  if constexpr (kPaired) {
    __syncthreads();
    if (busy && second) {
#pragma unroll
      for (int i = 0; i < kCols * 4; ++i) {
        const int row = first_col + i / 4 * 8 + 2 * t + i % 2;
        others[row * kStride + g + i / 2 % 2 * 8] = sums[i / 4][i % 4].Rounded();
      }
    }
    __syncthreads();
    if (second) return;
  }
  if (!busy) return;
#pragma unroll
  for (int i = 0; i < kCols * 4; ++i) {
    const int row = first_col + i / 4 * 8 + 2 * t + i % 2, tile_row = g + i / 2 % 2 * 8;
    if (row >= count) continue;
    store(row, tile_row, sums[i / 4][i % 4].Rounded(),
          kPaired ? others[row * kStride + tile_row] : 0.0f);
  }
}

}  // namespace dsv4::sm12x
