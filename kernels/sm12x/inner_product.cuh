// SPDX-License-Identifier: Apache-2.0
// y[r, n] = sum over k of w[n, k] x[r, k] for packed weights: the order of additions of all matrix
// operators, and their loop for few rows. gemm.cuh has the loop for many rows.
//
// Order: MMAs accumulate the product of a K slice (128 elements of K). The products of K slices,
// times their scales, are added in ascending order to an f32 sum (docs/adr/0022).
//
// Few rows (SplitProducts): the warps of a block divide K. A warp streams its part of one weight
// tile after the other through registers, with loads far ahead of their use, and multiplies it with
// eight activation rows at a time. Activations come as fragments from L1 or shared memory. The
// products of K slices are added in shared memory.
#pragma once

#include "kernels/sm12x/arch/memory.cuh"
#include "kernels/sm12x/arch/mma.cuh"
#include "kernels/sm12x/arch/threads.cuh"
#include "kernels/sm12x/packed_layout.h"
#include "lib/tensor/quant_format.h"

namespace dsv4::sm12x {

// A weight format: its packed K slices, the MMA operands made from them, and the activations that
// it is multiplied with.
// - kBWords: words of activations a lane and K slice. kSliceBytes: bytes a row and K slice.
// - Cursor: a lane's position in a tile. Lane 0's cursor also prefetches K slices to L2.
// - kTileScale: whether a K slice of a tile has one scale for all rows; Scale() returns its bits.
// - kTileScaleBytes: bytes of the scales of a K slice of a tile, where each of its rows has its
//   own.
// - Of: the weight of an expert's matrix in this format.
//
// For GEMMs (gemm.cuh), which process a step (32 elements of K) at a time:
// - kTileVectors: 16-byte vectors of a tile that a lane loads at once; kTileSteps: steps in them.
// - TileScales, TileScalesOf(): a lane's scales of a K slice of a tile, from shared memory.
// - Tile, TileOf<step>(): MMA operands of a tile's step, from the vectors and scales.
// - Columns, ColumnsOf<step>(): MMA operands of eight activation rows, from 16 bytes of each.
// - AddHalf<step, half>(): adds a half step to the product of the K slice; `of_step` belongs to the
//   step. EndStep<step>() ends the step. Both are called for each tile and eight rows.
// - AddSlice(): adds the product of a K slice, times its scales, to a sum.
// - kMmaScales, kEndScales: whether AddHalf, and whether AddSlice, uses the activations' scales.
struct Fp8Slices {
  using Weight = Fp8Weight;
  using Operand = Fp8Operand;
  static constexpr bool kQuantised = true;
  static constexpr int kVectors = 4, kBWords = 8, kSliceBytes = 128;
  static constexpr bool kTileScale = true;
  static constexpr int kTileScaleBytes = 0;
  static constexpr int kTileVectors = 1, kTileSteps = 1;
  static constexpr bool kMmaScales = DSV4_BLOCK_SCALED_MMA, kEndScales = !kMmaScales;
  using TileScales = NoScales;
  using Tile = TileFp8;
  using Columns = ColumnsE4M3;
  static __device__ __forceinline__ TileScales TileScalesOf(const std::byte*, int) { return {}; }
  template <int kStep>
  static __device__ __forceinline__ Tile TileOf(const uint4 (&codes)[1], TileScales, uint32_t) {
    return Tile(codes[0]);
  }
  template <int kStep>
  static __device__ __forceinline__ Columns ColumnsOf(uint4 codes) {
    return kStep % 2 == 0 ? Columns(codes.x, codes.y) : Columns(codes.z, codes.w);
  }
  template <int kStep, int kHalf>
  static __device__ __forceinline__ void AddHalf(const Tile& tile, const Columns& columns,
                                                 TileScales, uint32_t scale, uint32_t column_scale,
                                                 float (&)[4], float (&product)[4]) {
    AddFp8Half<kStep, kHalf>(tile, columns, scale, column_scale, product);
  }
  template <int kStep>
  static __device__ __forceinline__ void EndStep(TileScales, const float (&)[4], float (&)[4]) {}
  static __device__ __forceinline__ void AddSlice(const float (&product)[4], uint32_t scale,
                                                  ColumnValues columns, float (&sum)[4]) {
    AddScaled(product, columns, kMmaScales ? 1 : ScaleValue(scale), sum);
  }
  template <class Scales>
  struct CursorOf {
    const uint8_t* data;
    Scales scales;
    CursorOf() = default;
    __device__ __forceinline__ CursorOf(const Weight& w, int64_t tile, int lane)
        : data(w.data + tile * kTileRows * w.k + lane * 16),
          scales(w, tile * kTileRows / kFp8Block * (w.k / kKSlice)) {}
    __device__ __forceinline__ uint32_t Scale(int slice) const { return scales.Bits(slice); }
    __device__ __forceinline__ void Prefetch(int slice, int count) const {
      PrefetchBulk(data + int64_t{slice} * kFp8SliceBytes, count * kFp8SliceBytes);
    }
    template <class Into>
    __device__ __forceinline__ void Load(int slice, Into* raw) const {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        raw->data[i] = LoadOnce(data + int64_t{slice} * kFp8SliceBytes + i * 512);
      }
      raw->scale = Scale(slice);
    }
  };
  struct Scales {
    const uint8_t* codes;
    Scales() = default;
    __device__ __forceinline__ Scales(const Weight& w, int64_t first) : codes(w.scale + first) {}
    __device__ __forceinline__ uint32_t Bits(int slice) const { return __ldg(codes + slice); }
  };
  using Cursor = CursorOf<Scales>;
  struct Raw {
    uint4 data[kVectors];
    uint32_t scale;
    __device__ __forceinline__ Operand Unpacked() const { return {data, scale}; }
  };
};

// FP8 with f32 scales, or with E8M0 scales where the parts of a launch differ.
struct Fp8F32Slices : Fp8Slices {
  using Operand = Fp8F32Operand;
  template <int kStep, int kHalf>
  static __device__ __forceinline__ void AddHalf(const Tile& tile, const Columns& columns,
                                                 TileScales, uint32_t, uint32_t column_scale,
                                                 float (&)[4], float (&product)[4]) {
    AddFp8Half<kStep, kHalf>(tile, columns, kScaleOfOne, column_scale, product);
  }
  static __device__ __forceinline__ void AddSlice(float (&product)[4], uint32_t scale,
                                                  ColumnValues columns, float (&sum)[4]) {
    if constexpr (kEndScales) MultiplyColumns(columns, product);
    AddMultiplied(product, __uint_as_float(scale), sum);
  }
  static __device__ __forceinline__ Weight Of(const ExpertMatrix& m) {
    return {m.data, m.scale, m.n, m.k, m.f32_scale};
  }
  struct Scales {
    const uint8_t* codes;  // of both
    const float* f32;
    Scales() = default;
    __device__ __forceinline__ Scales(const Weight& w, int64_t first)
        : codes(w.f32_scale == nullptr ? w.scale + first : nullptr),
          f32(w.f32_scale == nullptr ? nullptr : w.f32_scale + first) {}
    __device__ __forceinline__ uint32_t Bits(int slice) const {
      return __float_as_uint(f32 != nullptr ? __ldg(f32 + slice)
                                            : ScaleValue(__ldg(codes + slice)));
    }
  };
  using Cursor = CursorOf<Scales>;
  struct Raw {
    uint4 data[kVectors];
    uint32_t scale;
    __device__ __forceinline__ Operand Unpacked() const { return {data, __uint_as_float(scale)}; }
  };
};

struct Fp4Slices {
  using Weight = Fp4Weight;
  using Operand = Fp4Operand;
  static constexpr bool kQuantised = true;
  static constexpr int kVectors = 2, kBWords = 8, kSliceBytes = 128;
  static constexpr bool kTileScale = false;
  static constexpr int kTileScaleBytes = kTileRows * 4;
  static constexpr int kTileVectors = 1, kTileSteps = 2;
  static constexpr bool kMmaScales = DSV4_BLOCK_SCALED_MMA, kEndScales = !kMmaScales;
  using TileScales = Fp4Scales;
  using Tile = TileFp4;
  using Columns = ColumnsE4M3;
  static __device__ __forceinline__ TileScales TileScalesOf(const std::byte* tile_scales,
                                                            int tile) {
    const auto* words = reinterpret_cast<const uint32_t*>(tile_scales + tile * kTileScaleBytes) +
                        Fp4ScaleWord(static_cast<int>(threadIdx.x % 32));
    return *reinterpret_cast<const Fp4Scales*>(words);
  }
  template <int kStep>
  static __device__ __forceinline__ Tile TileOf(const uint4 (&words)[1], TileScales, uint32_t) {
    return kStep % 2 == 0 ? Tile(words[0].x, words[0].y) : Tile(words[0].z, words[0].w);
  }
  template <int kStep>
  static __device__ __forceinline__ Columns ColumnsOf(uint4 codes) {
    return Fp8Slices::ColumnsOf<kStep>(codes);
  }
  template <int kStep, int kHalf>
  static __device__ __forceinline__ void AddHalf(const Tile& tile, const Columns& columns,
                                                 TileScales scales, uint32_t, uint32_t column_scale,
                                                 float (&of_step)[4], float (&product)[4]) {
    AddFp4Half<kStep, kHalf>(tile, columns, scales, column_scale, of_step, product);
  }
  template <int kStep>
  static __device__ __forceinline__ void EndStep(TileScales scales, const float (&of_step)[4],
                                                 float (&product)[4]) {
    EndFp4Step<kStep>(scales, of_step, product);
  }
  static __device__ __forceinline__ void AddSlice(const float (&product)[4], uint32_t,
                                                  ColumnValues columns, float (&sum)[4]) {
    AddScaled(product, columns, kE2M1Factor, sum);
  }
  static __device__ __forceinline__ Weight Of(const ExpertMatrix& m) {
    return {m.data, m.scale, m.n, m.k};
  }
  struct Raw {
    uint4 data[kVectors];
    Fp4Scales scale;
    __device__ __forceinline__ Operand Unpacked() const { return {data, scale}; }
  };
  struct Cursor {
    const uint8_t* data;
    const uint32_t* scale;
    Cursor() = default;
    __device__ __forceinline__ Cursor(const Weight& w, int64_t tile, int lane)
        : data(w.data + tile * kTileRows * w.k / 2 + lane * 16),
          scale(reinterpret_cast<const uint32_t*>(w.scale) + tile * kTileRows * (w.k / kKSlice) +
                Fp4ScaleWord(lane)) {}
    __device__ __forceinline__ Fp4Scales Scale(int slice) const {
      return __ldg(reinterpret_cast<const Fp4Scales*>(scale + slice * kTileRows));
    }
    __device__ __forceinline__ void Prefetch(int slice, int count) const {
      PrefetchBulk(data + int64_t{slice} * kFp4SliceBytes, count * kFp4SliceBytes);
    }
    __device__ __forceinline__ void Load(int slice, Raw* raw) const {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        raw->data[i] = LoadOnce(data + int64_t{slice} * kFp4SliceBytes + i * 512);
      }
      raw->scale = Scale(slice);
    }
  };
};

struct Nvfp4Slices {
  using Weight = Nvfp4Weight;
  using Operand = Nvfp4Operand;
  static constexpr bool kQuantised = true;
  static constexpr int kVectors = 2, kBWords = 8, kSliceBytes = 128;
  static constexpr bool kTileScale = true;  // that of the tensor
  static constexpr int kTileScaleBytes = kTileRows * 8;
  static constexpr int kTileVectors = 1, kTileSteps = 2;
  static constexpr bool kMmaScales = DSV4_BLOCK_SCALED_MMA, kEndScales = !kMmaScales;
  using TileScales = uint2;
  using Tile = TileNvfp4;
  using Columns = ColumnsE4M3;
  // A lane's pair of words of scales, of rows g and g + 8. Its eight elements of each step lie in
  // one run.
  static __device__ __forceinline__ int ScaleWords(int lane) { return lane % 4 / 2 * 8 + lane / 4; }
  static __device__ __forceinline__ TileScales TileScalesOf(const std::byte* tile_scales,
                                                            int tile) {
    return *(reinterpret_cast<const uint2*>(tile_scales + tile * kTileScaleBytes) +
             ScaleWords(static_cast<int>(threadIdx.x % 32)));
  }
  template <int kStep>
  static __device__ __forceinline__ Tile TileOf(const uint4 (&words)[1], TileScales scales,
                                                uint32_t) {
    return Tile({{words[0], words[0]}, scales}, kStep);
  }
  template <int kStep>
  static __device__ __forceinline__ Columns ColumnsOf(uint4 codes) {
    return Fp8Slices::ColumnsOf<kStep>(codes);
  }
  template <int kStep, int kHalf>
  static __device__ __forceinline__ void AddHalf(const Tile& tile, const Columns& columns,
                                                 TileScales, uint32_t, uint32_t column_scale,
                                                 float (&)[4], float (&product)[4]) {
    AddNvfp4Half<kStep, kHalf>(tile, columns.words, column_scale, product);
  }
  template <int kStep>
  static __device__ __forceinline__ void EndStep(TileScales, const float (&)[4], float (&)[4]) {}
  static __device__ __forceinline__ void AddSlice(float (&product)[4], uint32_t scale,
                                                  ColumnValues columns, float (&sum)[4]) {
    if constexpr (kEndScales) MultiplyColumns(columns, product);
    AddMultiplied(product, __uint_as_float(scale), sum);
  }
  static __device__ __forceinline__ Weight Of(const ExpertMatrix& m) {
    return {m.data, m.scale, m.n, m.k, m.tensor_scale};
  }
  struct Raw {
    uint4 data[kVectors];
    uint2 scales;
    uint32_t scale;
    __device__ __forceinline__ Operand Unpacked() const {
      return {{{data[0], data[1]}, scales}, __uint_as_float(scale)};
    }
  };
  struct Cursor {
    const uint8_t* data;
    const uint2* scale;
    float factor;
    Cursor() = default;
    __device__ __forceinline__ Cursor(const Weight& w, int64_t tile, int lane)
        : data(w.data + tile * kTileRows * w.k / 2 + lane * 16),
          scale(reinterpret_cast<const uint2*>(w.scale + tile * kTileRows * (w.k / kNvfp4Run)) +
                ScaleWords(lane)),
          factor(w.tensor_scale * kNvfp4Factor) {}
    __device__ __forceinline__ uint32_t Scale(int) const { return __float_as_uint(factor); }
    __device__ __forceinline__ void Prefetch(int slice, int count) const {
      PrefetchBulk(data + int64_t{slice} * kFp4SliceBytes, count * kFp4SliceBytes);
    }
    __device__ __forceinline__ void Load(int slice, Raw* raw) const {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        raw->data[i] = LoadOnce(data + int64_t{slice} * kFp4SliceBytes + i * 512);
      }
      raw->scales = __ldg(scale + slice * kTileRows);
      raw->scale = Scale(slice);
    }
  };
};

// Members for GEMMs of formats with bf16 activations. kVectors_: vectors of a tile in a step.
template <int kVectors_>
struct Bf16Steps {
  static constexpr int kTileVectors = kVectors_, kTileSteps = 1;
  static constexpr bool kMmaScales = false, kEndScales = false;
  using TileScales = NoScales;
  using Tile = Bf16Operand<2>;
  using Columns = uint4;
  static __device__ __forceinline__ TileScales TileScalesOf(const std::byte*, int) { return {}; }
  template <int kStep>
  static __device__ __forceinline__ Columns ColumnsOf(uint4 columns) {
    return columns;
  }
  template <int kStep, int kHalf>
  static __device__ __forceinline__ void AddHalf(const Tile& tile, const Columns& columns,
                                                 TileScales, uint32_t, uint32_t, float (&)[4],
                                                 float (&product)[4]) {
    if constexpr (kStep == 0 && kHalf == 0) {
      product[0] = product[1] = product[2] = product[3] = 0;
    }
    const uint4 a = tile.a[kHalf];
    MmaBf16(product, a.x, a.y, a.z, a.w, kHalf == 0 ? columns.x : columns.z,
            kHalf == 0 ? columns.y : columns.w);
  }
  template <int kStep>
  static __device__ __forceinline__ void EndStep(TileScales, const float (&)[4], float (&)[4]) {}
  // `factor` multiplies the products.
  static __device__ __forceinline__ void AddTimes(const float (&product)[4], float factor,
                                                  float (&sum)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] = __fmaf_rn(product[i], factor, sum[i]);
  }
};

struct Bf16Slices : Bf16Steps<2> {
  using Weight = Bf16Weight;
  using Operand = Bf16Operand<8>;
  static constexpr bool kQuantised = false;
  static constexpr int kVectors = 8, kBWords = 16, kSliceBytes = 256;
  static constexpr bool kTileScale = false;
  static constexpr int kTileScaleBytes = 0;
  template <int kStep>
  static __device__ __forceinline__ Tile TileOf(const uint4 (&vectors)[2], TileScales, uint32_t) {
    return Tile(vectors);
  }
  static __device__ __forceinline__ void AddSlice(const float (&product)[4], uint32_t, ColumnValues,
                                                  float (&sum)[4]) {
    AddTimes(product, 1, sum);
  }
  struct Raw {
    uint4 data[kVectors];
    uint32_t scale;  // none
    __device__ __forceinline__ Operand Unpacked() const { return Operand(data); }
  };
  struct Cursor {
    const std::byte* data;
    Cursor() = default;
    __device__ __forceinline__ Cursor(const Weight& w, int64_t tile, int lane)
        : data(reinterpret_cast<const std::byte*>(w.data + tile * kTileRows * w.k) + lane * 16) {}
    __device__ __forceinline__ uint32_t Scale(int) const { return 0; }
    __device__ __forceinline__ void Prefetch(int slice, int count) const {
      PrefetchBulk(data + int64_t{slice} * kBf16SliceBytes, count * kBf16SliceBytes);
    }
    __device__ __forceinline__ void Load(int slice, Raw* raw) const {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        raw->data[i] = LoadOnce(data + int64_t{slice} * kBf16SliceBytes + i * 512);
      }
    }
  };
};

// An FP8 weight with bf16 activations.
struct Fp8UnpackedSlices : Bf16Steps<1> {
  using Weight = Fp8Weight;
  using Operand = Fp8UnpackedOperand;
  static constexpr bool kQuantised = false;
  static constexpr int kVectors = 4, kBWords = 16, kSliceBytes = 256;
  static constexpr bool kTileScale = true;
  static constexpr int kTileScaleBytes = 0;
  template <int kStep>
  static __device__ __forceinline__ Tile TileOf(const uint4 (&codes)[1], TileScales, uint32_t) {
    return UnpackedToBf16(codes);
  }
  static __device__ __forceinline__ void AddSlice(const float (&product)[4], uint32_t scale,
                                                  ColumnValues, float (&sum)[4]) {
    AddTimes(product, ScaleValue(scale), sum);
  }
  struct Raw : Fp8Slices::Raw {
    __device__ __forceinline__ Operand Unpacked() const { return {data, scale}; }
  };
  using Cursor = Fp8Slices::Cursor;
};

// FP8 with f32 scales: codes times scales are rounded to bf16.
struct Fp8RoundedSlices : Bf16Steps<1> {
  using Weight = Fp8Weight;
  using Operand = Bf16Operand<8>;
  static constexpr bool kQuantised = false;
  static constexpr int kVectors = 4, kBWords = 16, kSliceBytes = 256;
  static constexpr bool kTileScale = true;
  static constexpr int kTileScaleBytes = 0;
  template <int kStep>
  static __device__ __forceinline__ Tile TileOf(const uint4 (&codes)[1], TileScales,
                                                uint32_t scale) {
    return RoundedToBf16(codes, __uint_as_float(scale));
  }
  static __device__ __forceinline__ void AddSlice(const float (&product)[4], uint32_t, ColumnValues,
                                                  float (&sum)[4]) {
    AddTimes(product, 1, sum);
  }
  struct Raw : Fp8F32Slices::Raw {
    __device__ __forceinline__ Operand Unpacked() const {
      return RoundedToBf16(data, __uint_as_float(scale));
    }
  };
  using Cursor = Fp8F32Slices::Cursor;
};

// A lane's fragments of a K slice of its activation row. Lanes 0 .. 3 of a row read 32 bytes each
// of 128 bytes of e4m3, or 16 bytes each of every 64 bytes of bf16.
template <class KSlices>
__device__ __forceinline__ void LoadActs(const std::byte* slice_of_row, int t,
                                         uint32_t (&b)[KSlices::kBWords]) {
  constexpr int kStep = KSlices::kQuantised ? 16 : 64, kLane = KSlices::kQuantised ? 32 : 16;
#pragma unroll
  for (int i = 0; i < KSlices::kBWords / 4; ++i) {
    const std::byte* from = slice_of_row + t * kLane + i * kStep;
    const uint4 v = *reinterpret_cast<const uint4*>(from);
    b[4 * i] = v.x;
    b[4 * i + 1] = v.y;
    b[4 * i + 2] = v.z;
    b[4 * i + 3] = v.w;
  }
}

template <class KSlices, class Operand>
__device__ __forceinline__ void Product(const Operand& w, const uint32_t (&b)[KSlices::kBWords],
                                        uint32_t act_scale, float (&sum)[4]) {
  if constexpr (KSlices::kQuantised) {
    SliceProduct<false>(w, Ready(b), act_scale, sum);
  } else {
    SliceProduct(w, b, sum);
  }
}

// Few rows.

inline constexpr int kSplitWarps = 8;
inline constexpr int kSplitThreads = kSplitWarps * 32;
inline constexpr int kSplitRows = 8;  // activation rows of one product
// Products of a K slice in shared memory: eight rows of 16, padded against bank conflicts.
inline constexpr int kProductStride = 20;
inline constexpr int kProductFloats = kSplitRows * kProductStride;

// How the warps of a block divide the K slices of a weight: 2^shift warps a tile.
struct SplitPlan {
  int slices, shift;
  int warps = kSplitWarps;
  int cols = 1;        // activation rows of one pass, in units of eight
  bool ahead = false;  // whether each warp prefetches all of its first tile at once
  constexpr int threads() const { return warps * 32; }
  constexpr int tiles() const { return warps >> shift; }  // of a block
  constexpr int Slot(int warp) const { return warp >> shift; }
  constexpr int Split(int warp) const { return warp & ((1 << shift) - 1); }
  constexpr int First(int split) const { return slices * split >> shift; }
  constexpr int rows() const { return cols * kSplitRows; }  // of one pass
  // Floats of a tile's products of kMatrices weights.
  template <class KSlices, int kMatrices>
  constexpr int64_t tile_floats() const {
    return int64_t{slices} * kMatrices * cols * kProductFloats;
  }
  template <class KSlices, int kMatrices>
  constexpr int64_t shared_bytes() const {
    return tiles() * tile_floats<KSlices, kMatrices>() * int64_t{sizeof(float)};
  }
};
// A warp gets about four K slices, or fewer if there are not as many.
constexpr SplitPlan SplitPlanOf(int64_t k) {
  const int slices = static_cast<int>(k / kKSlice);
  int shift = 0;
  while (1 << shift < kSplitWarps && 4 << shift < slices) ++shift;
  return {slices, shift};
}
// Shared memory of a block of SM12x.
inline constexpr int64_t kMaxSharedBytes = 99 * 1024;
// The split of a launch of `tiles` tiles and `rows` rows. If the tiles are too few for the
// multiprocessors, each gets twice the warps. A pass takes as many rows as shared memory has room
// for their products.
inline constexpr int kMaxSplitWarps = 16;
template <class KSlices>
constexpr SplitPlan SplitPlanOf(int64_t k, int64_t tiles, int64_t rows) {
  constexpr int64_t kFewTiles = 128;
  SplitPlan plan = SplitPlanOf(k);
  if (1 << plan.shift == kSplitWarps && tiles <= kFewTiles) {
    ++plan.shift;
    plan.warps = kMaxSplitWarps;
  }
  const int64_t wanted = (rows + kSplitRows - 1) / kSplitRows;
  const int64_t fit = (kMaxSharedBytes - 4096) / plan.shared_bytes<KSlices, 1>();
  plan.cols = static_cast<int>(fit < 1 ? 1 : wanted < fit ? wanted : fit);
  // A weight so small that its launch ends before memory reaches its full bandwidth.
  constexpr int64_t kSmallBytes = 10 << 20;
  plan.ahead = tiles * plan.slices * KSlices::kVectors * 512 <= kSmallBytes;
  return plan;
}

// How many of `sets` sets of tiles a block computes in turn: up to 8, so that `blocks` blocks
// suffice.
constexpr int SplitSteps(int64_t sets, int64_t blocks) {
  const int64_t steps = (sets + blocks - 1) / blocks;
  return static_cast<int>(steps < 1 ? 1 : steps > 8 ? 8 : steps);
}

// How many of a warp's `steps` tiles from `tile` on exist.
__device__ __forceinline__ int LiveSteps(int64_t tile, int64_t tiles, const SplitPlan& plan,
                                         int steps) {
  int live = 0;
  while (live < steps && tile + live * plan.tiles() < tiles) ++live;
  return live;
}

template <class KSlices, int kMatrices>
constexpr bool SplitFits(int64_t k) {
  return SplitPlanOf(k).shared_bytes<KSlices, kMatrices>() <= kMaxSharedBytes - 4096;
}

// Computes the K slice products of a sequence of tiles of each of kMatrices weights with `count`
// activation rows, plan.rows() rows a pass. All threads of a block call it.
// - A warp goes through `steps` tiles from `cursor_of(step, matrix)`; only the first `live_steps`
//   exist for it. It goes through K slices [first, end) of each tile. kHeld K slices are in
//   registers or being loaded at any time, across the ends of tiles.
// - kManyCols: plan.cols may be above 1.
// - `row_of(row)` returns the memory of activation row `row`; the scales of a quantised row follow
//   `scale_bytes` behind.
// - For each pass of each tile it calls `prepare(step, base)`, writes the products of the warp's
//   tile, and calls `epilogue(step, base)` between barriers.
// - A product is products[((K slice * kMatrices + matrix) * cols + col) * kProductFloats +
//   row % 8 * kProductStride + tile row], where col = row / 8 within the pass.
template <class KSlices, int kMatrices, int kHeld, bool kManyCols, class CursorOf, class Prepare,
          class RowOf, class Epilogue>
__device__ __forceinline__ void SplitProducts(const SplitPlan& plan, int steps, int live_steps,
                                              int first, int end, int count, int64_t scale_bytes,
                                              float* products, CursorOf&& cursor_of,
                                              Prepare&& prepare, RowOf&& row_of,
                                              Epilogue&& epilogue) {
  using Cursor = typename KSlices::Cursor;
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  typename KSlices::Raw held[kHeld][kMatrices];
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
        // The K slices of the next iteration: of this tile, of this tile's next pass, or of the
        // next tile.
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
          const int slice = group + i;
          if (slice < end) {
            const int cols =
                kManyCols ? min(plan.cols, (count - base + kSplitRows - 1) / kSplitRows) : 1;
#pragma unroll 1
            for (int c = 0; c < cols; ++c) {
              if constexpr (kManyCols) {
                row = row_of(min(base + c * kSplitRows + g, count - 1));
                // Operands are unpacked again: there are no registers to keep them.
#pragma unroll
                for (int m = 0; m < kMatrices; ++m) {
#pragma unroll
                  for (int v = 0; v < KSlices::kVectors; ++v) Forget(&held[i][m].data[v]);
                }
              }
              uint32_t b[KSlices::kBWords], scale = 0;
              LoadActs<KSlices>(row + slice * KSlices::kSliceBytes, t, b);
              if constexpr (KSlices::kQuantised) {
                scale = *reinterpret_cast<const uint8_t*>(row + scale_bytes + slice);
              }
#pragma unroll
              for (int m = 0; m < kMatrices; ++m) {
                float sum[4];
                Product<KSlices>(held[i][m].Unpacked(), b, scale, sum);
                float* to = products + ((slice * kMatrices + m) * plan.cols + c) * kProductFloats +
                            2 * t * kProductStride + g;
                to[0] = sum[0];
                to[kProductStride] = sum[1];
                to[8] = sum[2];
                to[kProductStride + 8] = sum[3];
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
      epilogue(step, base);
      __syncthreads();
    }
  }
}

// The sum of SplitProducts' products of one matrix for row `row` of the pass and row `tile_row` of
// the tile.
template <int kMatrices>
__device__ __forceinline__ float SplitSum(const float* products, const SplitPlan& plan, int matrix,
                                          int row, int tile_row) {
  const float* from = products + (matrix * plan.cols + row / kSplitRows) * kProductFloats +
                      row % kSplitRows * kProductStride + tile_row;
  float sum = 0;
#pragma unroll 4
  for (int c = 0; c < plan.slices; ++c, from += kMatrices * plan.cols * kProductFloats) {
    sum = __fadd_rn(sum, *from);
  }
  return sum;
}

}  // namespace dsv4::sm12x
