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
#include "kernels/sm12x/packed_layout.h"
#include "kernels/sm12x/two_float.cuh"
#include "lib/tensor/quant_format.h"

namespace dsv4::sm12x {

// 16 bytes of a weight that this launch reads kOnce, or several blocks soon after each other.
template <bool kOnce>
__device__ __forceinline__ uint4 LoadWeight(const void* from) {
  return kOnce ? LoadOnce(from) : LoadAgain(from);
}

// How a weight format is read: its packed chains, the operand that MMAs want, and the activations
// it multiplies: kBWords words a lane and chain, kChainBytes bytes a row and chain.
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
    template <bool kOnce>
    __device__ __forceinline__ void Load(int chain, Raw* raw) const {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        raw->data[i] = LoadWeight<kOnce>(data + int64_t{chain} * kFp8ChainBytes + i * 512);
      }
      raw->scale = __ldg(scale + chain);
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
    uint32_t scale;
    __device__ __forceinline__ Operand Widened() const { return {data, scale}; }
  };
  struct Cursor {
    const uint8_t* data;
    const uint32_t* scale;
    Cursor() = default;
    __device__ __forceinline__ Cursor(const Weight& w, int64_t tile, int lane)
        : data(w.data + tile * kTileRows * w.k / 2 + lane * 16),
          scale(reinterpret_cast<const uint32_t*>(w.scale) + tile * kTileRows * (w.k / kChain) +
                Fp4ScaleRow(lane)) {}
    template <bool kOnce>
    __device__ __forceinline__ void Load(int chain, Raw* raw) const {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        raw->data[i] = LoadWeight<kOnce>(data + int64_t{chain} * kFp4ChainBytes + i * 512);
      }
      raw->scale = __ldg(scale + chain * kTileRows);
    }
  };
};

struct Bf16Chains {
  using Weight = Bf16Weight;
  using Operand = Bf16Operand;
  using Sum = TwoFloat;
  static constexpr bool kQuantised = false;
  static constexpr int kVectors = 8, kBWords = 16, kChainBytes = 256;
  using Raw = Bf16Operand;
  struct Cursor {
    const std::byte* data;
    Cursor() = default;
    __device__ __forceinline__ Cursor(const Weight& w, int64_t tile, int lane)
        : data(reinterpret_cast<const std::byte*>(w.data + tile * kTileRows * w.k) + lane * 16) {}
    template <bool kOnce>
    __device__ __forceinline__ void Load(int chain, Raw* raw) const {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        raw->a[i] = LoadWeight<kOnce>(data + int64_t{chain} * kBf16ChainBytes + i * 512);
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

template <class Raw>
__device__ __forceinline__ auto WidenedOf(const Raw& raw) {
  return raw.Widened();
}
__device__ __forceinline__ const Bf16Operand& WidenedOf(const Bf16Operand& raw) { return raw; }

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
    ChainProduct(w, b, act_scale, sum);
  } else {
    ChainProduct(w, b, sum);
  }
}

// ---- few rows ----

inline constexpr int kSplitWarps = 8;
inline constexpr int kSplitThreads = kSplitWarps * 32;
inline constexpr int kSplitRows = 8;  // activation rows of one pass
// Products of a chain in shared memory: eight rows of 16, padded against bank conflicts.
inline constexpr int kProductStride = 20;
inline constexpr int kProductPlane = kSplitRows * kProductStride;
// The lower parts of TwoFloats behind the upper.
template <class Chains>
inline constexpr int kProductFloats =
    kProductPlane* int{sizeof(typename Chains::Sum) / sizeof(float)};

// How the warps of a block share out a weight of `chains` chains: `splits` warps a tile.
struct SplitPlan {
  int chains, splits;
  constexpr int tiles() const { return kSplitWarps / splits; }  // of a block
  constexpr int First(int split) const { return chains * split / splits; }
  // Floats of a tile's products of kMatrices weights.
  template <class Chains, int kMatrices>
  constexpr int64_t tile_floats() const {
    return int64_t{chains} * kMatrices * kProductFloats<Chains>;
  }
  template <class Chains, int kMatrices>
  constexpr int64_t shared_bytes() const {
    return tiles() * tile_floats<Chains, kMatrices>() * int64_t{sizeof(float)};
  }
};
// A warp gets about four chains of K, or all that there is to share out.
constexpr SplitPlan SplitPlanOf(int64_t k) {
  const int chains = static_cast<int>(k / kChain);
  int splits = 1;
  while (splits < kSplitWarps && splits * 4 < chains) splits *= 2;
  return {chains, splits};
}

// How many of `sets` sets of tiles a block takes one after the other: several, where that leaves as
// many blocks as run at a time on most devices.
inline constexpr int64_t kSplitBlocks = 264;
constexpr int SplitSteps(int64_t sets) {
  const int64_t steps = (sets + kSplitBlocks - 1) / kSplitBlocks;
  return static_cast<int>(steps < 1 ? 1 : steps > 8 ? 8 : steps);
}

// How many of its `steps` tiles from `tile` on a warp has.
__device__ __forceinline__ int LiveSteps(int64_t tile, int64_t tiles, const SplitPlan& plan,
                                         int steps) {
  if (tile >= tiles) return 0;
  return static_cast<int>(min((tiles - 1 - tile) / plan.tiles() + 1, int64_t{steps}));
}

// The shared-memory limit of a block that asks for no more than the default.
inline constexpr int64_t kDefaultSharedBytes = 48 * 1024;
template <class Chains, int kMatrices>
constexpr bool SplitFits(int64_t k) {
  return SplitPlanOf(k).shared_bytes<Chains, kMatrices>() <= kDefaultSharedBytes - 4096;
}

__device__ __forceinline__ void StoreProduct(float value, float* to) { *to = value; }
__device__ __forceinline__ void StoreProduct(TwoFloat value, float* to) {
  to[0] = value.hi;
  to[kProductPlane] = value.lo;
}

// The chain products of one tile after the other of each of kMatrices weights with `count` rows of
// activations, eight rows a pass. A block calls it with all its threads. Its warps go through
// `steps` tiles, of which the first `live_steps` are there for this warp: `cursor_of(step,
// matrix)`; and of a tile through chains [first, end), kHeld of which are held or under way at any
// time, over the ends of tiles. For each pass of each tile calls `prepare(step, base)`;
// `row_of(row)` for the memory of activation row `row`, with scales `scale_bytes` behind it where
// quantised; writes products[(chain * kMatrices + matrix) * kProductFloats + row % 8 *
// kProductStride + tile row] of this warp's tile; then, between barriers, `finish(step, base)`.
template <class Chains, int kMatrices, int kHeld, class CursorOf, class Prepare, class RowOf,
          class Finish>
__device__ __forceinline__ void SplitProducts(int steps, int live_steps, int first, int end,
                                              int count, int64_t scale_bytes, float* products,
                                              CursorOf&& cursor_of, Prepare&& prepare,
                                              RowOf&& row_of, Finish&& finish) {
  using Cursor = typename Chains::Cursor;
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  typename Chains::Raw held[kHeld][kMatrices];
  Cursor ahead[kMatrices];  // where the next loads are from
#pragma unroll
  for (int m = 0; m < kMatrices; ++m) ahead[m] = cursor_of(0, m);
  if (live_steps > 0) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (first + i >= end) break;
#pragma unroll
      for (int m = 0; m < kMatrices; ++m) ahead[m].template Load<true>(first + i, &held[i][m]);
    }
  }
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
#pragma unroll 1
    for (int base = 0; base < count; base += kSplitRows) {
      prepare(step, base);
      const std::byte* row = row_of(min(base + g, count - 1));
#pragma unroll 1
      for (int group = first; group < end && step < live_steps; group += kHeld) {
        // The chains that the next turn takes: of this tile, the same again, or of the next.
        int next = group + kHeld;
        bool load = true;
        if (next >= end) {
          next = first;
          if (base + kSplitRows < count) {
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
            uint32_t b[Chains::kBWords], scale = 0;
            LoadActs<Chains>(row + chain * Chains::kChainBytes, t, b);
            if constexpr (Chains::kQuantised) {
              scale = *reinterpret_cast<const uint8_t*>(row + scale_bytes + chain);
            }
#pragma unroll
            for (int m = 0; m < kMatrices; ++m) {
              typename Chains::Sum sum[4];
              Product<Chains>(WidenedOf(held[i][m]), b, scale, sum);
              float* to = products + (chain * kMatrices + m) * kProductFloats<Chains> +
                          2 * t * kProductStride + g;
              StoreProduct(sum[0], to);
              StoreProduct(sum[1], to + kProductStride);
              StoreProduct(sum[2], to + 8);
              StoreProduct(sum[3], to + kProductStride + 8);
            }
          }
          if (load && next + i < end) {
#pragma unroll
            for (int m = 0; m < kMatrices; ++m) {
              ahead[m].template Load<true>(next + i, &held[i][m]);
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
__device__ __forceinline__ float SplitSum(const float* products, int chains, int matrix, int row,
                                          int tile_row) {
  const float* from = products + matrix * kProductFloats<Chains> + row * kProductStride + tile_row;
  TwoFloat sum;
#pragma unroll 4
  for (int c = 0; c < chains; ++c, from += kMatrices * kProductFloats<Chains>) {
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
// with kCols eights of them.
inline constexpr int kTiledWarpsM = 4, kTiledWarpsN = 2, kTiledCols = 4;
inline constexpr int kTiledThreads = kTiledWarpsM * kTiledWarpsN * 32;
inline constexpr int kTiledRows = kTiledWarpsN * kTiledCols * 8;   // 64
inline constexpr int kTiledWeightRows = kTiledWarpsM * kTileRows;  // 64

template <class Chains>
struct TiledStages {
  // A row's chain and padding that spreads the lanes' 16-byte reads over all banks.
  static constexpr int kRowBytes = Chains::kChainBytes + (Chains::kQuantised ? 16 : 64);
  static constexpr int kBytes = kTiledRows * kRowBytes;
  static constexpr int kCount = Chains::kQuantised ? 3 : 2;
};
// Stages, then the scales of all chains, [row][chain].
template <class Chains>
constexpr int64_t TiledSharedBytes(int64_t k) {
  using Stages = TiledStages<Chains>;
  return Stages::kBytes * Stages::kCount +
         (Chains::kQuantised ? (k / kChain + 3) / 4 * 4 * kTiledRows : 0);
}
template <class Chains>
constexpr bool TiledFits(int64_t k) {
  return TiledSharedBytes<Chains>(k) <= kDefaultSharedBytes - 1024;
}

// The sums of a tile, `w`, of `chains` chains of each of kMatrices weights with kTiledRows rows,
// `count` of which are live. A block calls it with all kTiledThreads. `row_of` as for
// SplitProducts; called with rows below `count` only. Calls store(row, tile_row, sums) for each
// output of live warps and rows, `sums` an array with a value of each matrix. `shared` has
// TiledSharedBytes at a 16-byte boundary.
template <class Chains, int kMatrices, class RowOf, class Store>
__device__ __forceinline__ void TiledProducts(const typename Chains::Cursor (&w)[kMatrices],
                                              int chains, bool live, int count, int64_t scale_bytes,
                                              std::byte* shared, RowOf&& row_of, Store&& store) {
  using Stages = TiledStages<Chains>;
  constexpr int kStages = Stages::kCount;
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int first_col = threadIdx.x / 32 / kTiledWarpsM * (kTiledCols * 8);
  const int scale_stride = (chains + 3) / 4 * 4;
  uint8_t* scales = reinterpret_cast<uint8_t*>(shared + kStages * Stages::kBytes);

  const auto stage = [&](int chain) {
    constexpr int kPieces = Chains::kChainBytes / 16;
    if (chain < chains) {
      std::byte* to = shared + chain % kStages * Stages::kBytes;
#pragma unroll
      for (int i = threadIdx.x; i < kTiledRows * kPieces; i += kTiledThreads) {
        const int row = i / kPieces, piece = i % kPieces;
        CopyAsync16(
            to + row * Stages::kRowBytes + piece * 16,
            row_of(min(row, count - 1)) + int64_t{chain} * Chains::kChainBytes + piece * 16);
      }
    }
    CommitCopies();
  };
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) stage(s);
  if constexpr (Chains::kQuantised) {
    for (int i = threadIdx.x; i < kTiledRows * chains; i += kTiledThreads) {
      const int row = i / chains, chain = i % chains;
      scales[row * scale_stride + chain] =
          *reinterpret_cast<const uint8_t*>(row_of(min(row, count - 1)) + scale_bytes + chain);
    }
  }

  // Weights are requested kAhead chains before their use.
  constexpr int kAhead = kMatrices * Chains::kVectors <= 4 ? 2 : 1;
  TwoFloat sums[kMatrices][kTiledCols][4];
  typename Chains::Raw ahead[kAhead][kMatrices];
  const auto load = [&](int chain, typename Chains::Raw(&to)[kMatrices]) {
    if (!live || chain >= chains) return;
#pragma unroll
    for (int m = 0; m < kMatrices; ++m) w[m].template Load<false>(chain, &to[m]);
  };
#pragma unroll
  for (int i = 0; i < kAhead; ++i) load(i, ahead[i]);
  for (int group = 0; group < chains; group += kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int chain = group + i;
      if (chain >= chains) break;
      WaitForCopies<kStages - 2>();
      __syncthreads();
      stage(chain + kStages - 1);
      if (!live) continue;
      const std::byte* acts = shared + chain % kStages * Stages::kBytes;
#pragma unroll
      for (int m = 0; m < kMatrices; ++m) {
        const auto operand = WidenedOf(ahead[i][m]);
        if (chain + kAhead < chains) w[m].template Load<false>(chain + kAhead, &ahead[i][m]);
#pragma unroll
        for (int c = 0; c < kTiledCols; ++c) {
          const int col = first_col + c * 8;
          if (col >= count) break;
          uint32_t b[Chains::kBWords];
          LoadActs<Chains>(acts + (col + g) * Stages::kRowBytes, t, b);
          uint32_t scale = 0;
          if constexpr (Chains::kQuantised) scale = scales[(col + g) * scale_stride + chain];
          typename Chains::Sum sum[4];
          Product<Chains>(operand, b, scale, sum);
#pragma unroll
          for (int v = 0; v < 4; ++v) sums[m][c][v].Add(sum[v]);
        }
      }
    }
  }
  WaitForCopies<0>();
  if (!live) return;
#pragma unroll
  for (int c = 0; c < kTiledCols; ++c) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = first_col + c * 8 + 2 * t + i % 2;
      if (row >= count) continue;
      float values[kMatrices];
#pragma unroll
      for (int m = 0; m < kMatrices; ++m) values[m] = sums[m][c][i].Rounded();
      store(row, g + i / 2 * 8, values);
    }
  }
}

}  // namespace dsv4::sm12x
