// SPDX-License-Identifier: Apache-2.0
// y[r, n] = sum over k of w[n, k] x[r, k] for packed weights: the one order of additions of all
// matrix operators, and the way through it for few rows.
//
// Order: MMAs accumulate a K slice, 128 elements of K; the K slices' products, times their scales,
// are added in ascending order to an f32 sum (docs/adr/0022).
//
// For few rows, SplitProducts: the warps of a block share out K. A warp streams its part of one
// tile after the other through registers, far ahead of its use, and takes eight rows after the
// other past it. Activations come as fragments from L1 or shared memory; K slice products meet in
// shared memory. For many rows: gemm.cuh.
#pragma once

#include "kernels/sm12x/arch/memory.cuh"
#include "kernels/sm12x/arch/mma.cuh"
#include "kernels/sm12x/arch/threads.cuh"
#include "kernels/sm12x/packed_layout.h"
#include "lib/tensor/quant_format.h"

namespace dsv4::sm12x {

// How a weight format is read: its packed K slices, the operand that MMAs want, and the activations
// it multiplies: kBWords words a lane and K slice, kSliceBytes bytes a row and K slice. A cursor is
// a lane's into a tile; lane 0's asks for K slices to be brought to L2. kTileScale: a K slice of a
// tile has one scale, whose bits Scale() gives; kTileScaleBytes: those that it has for each row.
// Of: the weight of an expert's matrix that has this format.
//
// For GEMMs (gemm.cuh), which take a step, 32 elements of K, at a time:
//   kTileVectors, kTileSteps    vectors of 16 bytes of a tile that a lane loads at once; the steps
//   in
//                               them
//   TileScales, TileScalesOf()  a lane's scales of a K slice of a tile, from shared memory
//   Tile, TileOf<step>()        a tile's step as MMAs want it, from those vectors, those scales and
//                               the tile's scale
//   Columns, ColumnsOf<step>()  the same of eight rows of activations, from 16 bytes of each
//   AddHalf<step, half>()       adds a half step to the K slice's product; `of_step` is the step's
//   EndStep<step>()             ends a step: both for each tile and eight rows
//   AddSlice()                  adds the product, times its scales, to a sum
//   kMmaScales, kEndScales      whether AddHalf wants the scales of activations; AddSlice does
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

// FP8 under f32 scales, or E8M0 ones where parts of a launch differ.
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
    const uint8_t* codes;  // either
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
  static constexpr bool kTileScale = true;  // the tensor's
  static constexpr int kTileScaleBytes = kTileRows * 8;
  static constexpr int kTileVectors = 1, kTileSteps = 2;
  static constexpr bool kMmaScales = false, kEndScales = true;
  using TileScales = uint2;
  using Tile = TileNvfp4;
  using Columns = ColumnsF16;
  // Which pair of words of scales, of rows g and g + 8, is a lane's: eight of its elements are in
  // one half of each step.
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
    return kStep % 2 == 0 ? Columns(codes.x, codes.y) : Columns(codes.z, codes.w);
  }
  template <int kStep, int kHalf>
  static __device__ __forceinline__ void AddHalf(const Tile& tile, const Columns& columns,
                                                 TileScales, uint32_t, uint32_t, float (&)[4],
                                                 float (&product)[4]) {
    AddUnpackedHalf<kStep == 0 && kHalf == 0>(tile.a[kHalf], columns.words + 2 * kHalf, product);
  }
  template <int kStep>
  static __device__ __forceinline__ void EndStep(TileScales, const float (&)[4], float (&)[4]) {}
  static __device__ __forceinline__ void AddSlice(float (&product)[4], uint32_t scale,
                                                  ColumnValues columns, float (&sum)[4]) {
    MultiplyColumns(columns, product);
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
          factor(w.tensor_scale * kE2M1F16Factor) {}
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

// What GEMMs do with bf16 activations. kVectors_: of a tile in a step.
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
  // `factor`: what products are multiplied by.
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
    __device__ __forceinline__ Operand Unpacked() const { return {data}; }
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

// An fp8 weight with activations that are not quantised.
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

// The same under f32 scales, of which the weight means its products rounded to bf16.
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

// The fragments of one lane from K slice `K slice` of its activation row. Lanes 0 .. 3 of a row
// read 128 bytes of e4m3 as 32 each, or 256 bytes of bf16 as 16 of each 64.
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

// ---- few rows ----

inline constexpr int kSplitWarps = 8;
inline constexpr int kSplitThreads = kSplitWarps * 32;
inline constexpr int kSplitRows = 8;  // activation rows of one product
// Products of a K slice in shared memory: eight rows of 16, padded against bank conflicts.
inline constexpr int kProductStride = 20;
inline constexpr int kProductFloats = kSplitRows * kProductStride;

// How the warps of a block share out a weight of `K slices` K slices: 2^shift warps a tile.
struct SplitPlan {
  int slices, shift;
  int warps = kSplitWarps;
  int cols = 1;        // eights of activation rows of one pass
  bool ahead = false;  // whether each warp asks for all of its first tile at once
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
// A warp gets about four K slices of K, or all that there is to share out.
constexpr SplitPlan SplitPlanOf(int64_t k) {
  const int slices = static_cast<int>(k / kKSlice);
  int shift = 0;
  while (1 << shift < kSplitWarps && 4 << shift < slices) ++shift;
  return {slices, shift};
}
// Shared memory of a block of SM12x.
inline constexpr int64_t kMaxSharedBytes = 99 * 1024;
// The same for a launch of `tiles` tiles and `rows` rows: so few tiles that they leave
// multiprocessors idle have twice the warps each, and as many rows pass each weight as there is
// shared memory for their products.
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
  // A weight so small that its launch is over when the memory has got up to speed.
  constexpr int64_t kSmallBytes = 10 << 20;
  plan.ahead = tiles * plan.slices * KSlices::kVectors * 512 <= kSmallBytes;
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

template <class KSlices, int kMatrices>
constexpr bool SplitFits(int64_t k) {
  return SplitPlanOf(k).shared_bytes<KSlices, kMatrices>() <= kMaxSharedBytes - 4096;
}

// The K slice products of one tile after the other of each of kMatrices weights with `count` rows
// of activations, plan.rows() a pass. A block calls it with all its threads. Its warps go through
// `steps` tiles, of which the first `live_steps` are there for this warp: `cursor_of(step,
// matrix)`; and of a tile through K slices [first, end), kHeld of which are held or under way at
// any time, over the ends of tiles. kManyCols: plan.cols may be above 1. For each pass of each tile
// calls `prepare(step, base)`; `row_of(row)` for the memory of activation row `row`, with scales
// `scale_bytes` behind it where quantised; writes products[((K slice * kMatrices + matrix) * cols +
// col) * kProductFloats + row % 8 * kProductStride + tile row] of this warp's tile, col: of the
// row's eight; then, between barriers, `finish(step, base)`.
template <class KSlices, int kMatrices, int kHeld, bool kManyCols, class CursorOf, class Prepare,
          class RowOf, class Finish>
__device__ __forceinline__ void SplitProducts(const SplitPlan& plan, int steps, int live_steps,
                                              int first, int end, int count, int64_t scale_bytes,
                                              float* products, CursorOf&& cursor_of,
                                              Prepare&& prepare, RowOf&& row_of, Finish&& finish) {
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
        // The K slices that the next turn takes: of this tile, the same again, or of the next.
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
                // What operands are made into is made again: there are no registers to keep it.
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
      finish(step, base);
      __syncthreads();
    }
  }
}

// The sum of the products that SplitProducts left of one matrix for row `row` of its pass and row
// `tile_row` of the tile.
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
