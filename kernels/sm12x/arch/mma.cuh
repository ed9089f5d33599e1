// SPDX-License-Identifier: Apache-2.0
// Products of 16 weight rows (a tile) and 8 activation rows (columns) over a K slice, the 128
// elements of K that share an activation scale. MMAs accumulate a product in f32 from zero on.
// - bf16: mma.sync m16n8k16.
// - e4m3 or e2m1 weights by e4m3 activations, with ue8m0 scales: block-scaled mma.sync of SM12x.
// - Portable fallback of that for other targets: codes are converted to f16, which is exact; each
//   step of 32 elements is two m16n8k16, and the scales multiply the products afterwards.
// Fragments are those of packed_layout.h. Lane 4 g + t gets rows g, g, g + 8, g + 8 and columns
// 2 t, 2 t + 1, 2 t, 2 t + 1.
//
// Kernels for few rows call SliceProduct, which computes the product of a K slice. Kernels for many
// rows compute a step (K = 32) at a time: Tile* and Columns* hold the operands of a step, Add*Half
// adds half of its product, EndFp4Step ends it, and AddScaled or AddMultiplied adds the product of
// a K slice to an f32 sum. Both ways give the same bits: ue8m0 scales are powers of two, so
// products with them are exact, and FMA rounds as an addition does.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/sm12x/arch/e2m1_words.cuh"
#include "kernels/sm12x/arch/mma_instructions.cuh"
#include "kernels/sm12x/arch/numbers.cuh"
#include "kernels/sm12x/arch/target.cuh"

namespace dsv4::sm12x {

// The value of a ue8m0 scale.
__device__ __forceinline__ float ScaleValue(uint32_t scale) {
  return __uint_as_float(max(scale << 23, 0x00400000u));
}

// A lane's e4m3 activations of a K slice as MMA operands: on SM12x the codes, else f16. A step has
// eight activations, in kReadyWords words.
inline constexpr int kReadyWords = DSV4_BLOCK_SCALED_MMA ? 2 : 4;
struct ReadyActs {
  uint32_t words[4 * kReadyWords];
};
__device__ __forceinline__ void MakeReady(uint32_t low, uint32_t high, uint32_t* to) {
#if DSV4_BLOCK_SCALED_MMA
  to[0] = low;
  to[1] = high;
#else
  to[0] = F16x2OfE4M3x2(static_cast<uint16_t>(low));
  to[1] = F16x2OfUpperE4M3x2(low);
  to[2] = F16x2OfE4M3x2(static_cast<uint16_t>(high));
  to[3] = F16x2OfUpperE4M3x2(high);
#endif
}
__device__ __forceinline__ ReadyActs Ready(const uint32_t (&codes)[8]) {
  ReadyActs out;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    MakeReady(codes[2 * j], codes[2 * j + 1], out.words + j * kReadyWords);
  }
  return out;
}

// In the functions below, `act_scale` is the ue8m0 scale of activation row lane / 4 in the K slice.
// All lanes of the warp call them. With kOneRow, every lane passes the scale of row 0, and only
// column 0 of the result, in lanes 4 g, is defined.

// sum *= factor and the scales of this lane's columns, which lanes 8 t and 8 t + 4 hold.
template <bool kOneRow>
__device__ __forceinline__ void ScaleColumns(uint32_t act_scale, float factor, float (&sum)[4]) {
  if constexpr (kOneRow) {
    factor *= ScaleValue(act_scale);
    sum[0] *= factor;
    sum[2] *= factor;
  } else {
    const int lane = threadIdx.x % 4 * 8;
    const float even = factor * ScaleValue(__shfl_sync(0xffffffffu, act_scale, lane));
    const float odd = factor * ScaleValue(__shfl_sync(0xffffffffu, act_scale, lane + 4));
    sum[0] *= even;
    sum[1] *= odd;
    sum[2] *= even;
    sum[3] *= odd;
  }
}

// d += a b over K = 32, without scales, from the f16 operands of both half steps.
__device__ __forceinline__ void MmaUnpacked(float (&d)[4], const uint32_t (&a0)[4],
                                            const uint32_t (&a1)[4], const uint32_t* b) {
  MmaF16(d, a0[0], a0[1], a0[2], a0[3], b[0], b[1]);
  MmaF16(d, a1[0], a1[1], a1[2], a1[3], b[2], b[3]);
}

// The four steps of a K slice of an e4m3 weight tile, with one scale.
struct Fp8Operand {
  uint4 steps[4];
  uint32_t scale;
  __device__ __forceinline__ Fp8Operand(const uint4 (&codes)[4], uint32_t scale_code)
      : steps{codes[0], codes[1], codes[2], codes[3]}, scale(scale_code) {}
};

#if !DSV4_BLOCK_SCALED_MMA
__device__ __forceinline__ void UnpackE4M3Words(uint32_t low, uint32_t high, uint32_t (&to)[4]) {
  to[0] = F16x2OfE4M3x2(static_cast<uint16_t>(low));
  to[1] = F16x2OfE4M3x2(static_cast<uint16_t>(high));
  to[2] = F16x2OfUpperE4M3x2(low);
  to[3] = F16x2OfUpperE4M3x2(high);
}
#endif

// The scales of a lane's columns of activations, 2 t and 2 t + 1.
struct ColumnValues {
  float even = 0, odd = 0;
  // Loads byte `byte` of the words of eight rows. They are a quantiser's scales: normal numbers.
  static __device__ __forceinline__ ColumnValues Load(const uint32_t* words, int byte) {
    const uint2 pair = *reinterpret_cast<const uint2*>(words + threadIdx.x % 4 * 2);
    const auto value = [byte](uint32_t word) {
      return __uint_as_float(__byte_perm(word, 0, 0x4440 + byte) << 23);
    };
    return {value(pair.x), value(pair.y)};
  }
};
struct NoScales {};

// sum += product. In the fallback, product is first multiplied by the columns' scales and `factor`,
// which the MMAs have not applied.
__device__ __forceinline__ void AddScaled(const float (&product)[4],
                                          [[maybe_unused]] const ColumnValues& scales,
                                          [[maybe_unused]] float factor, float (&sum)[4]) {
#if DSV4_BLOCK_SCALED_MMA
#pragma unroll
  for (int i = 0; i < 4; ++i) sum[i] = __fadd_rn(sum[i], product[i]);
#else
  const float even = factor * scales.even, odd = factor * scales.odd;
  sum[0] = __fmaf_rn(product[0], even, sum[0]);
  sum[1] = __fmaf_rn(product[1], odd, sum[1]);
  sum[2] = __fmaf_rn(product[2], even, sum[2]);
  sum[3] = __fmaf_rn(product[3], odd, sum[3]);
#endif
}

template <bool kOneRow>
__device__ __forceinline__ void SliceProduct(const Fp8Operand& w, const ReadyActs& acts,
                                             uint32_t act_scale, float (&sum)[4]) {
  sum[0] = sum[1] = sum[2] = sum[3] = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const uint32_t* b = acts.words + j * kReadyWords;
#if DSV4_BLOCK_SCALED_MMA
    MmaScaledE4M3(sum, w.steps[j], b[0], b[1], w.scale, act_scale);
#else
    uint32_t a[2][4];
    UnpackE4M3Words(w.steps[j].x, w.steps[j].y, a[0]);
    UnpackE4M3Words(w.steps[j].z, w.steps[j].w, a[1]);
    MmaUnpacked(sum, a[0], a[1], b);
#endif
  }
#if !DSV4_BLOCK_SCALED_MMA
  ScaleColumns<kOneRow>(act_scale, ScaleValue(w.scale), sum);
#endif
}

// Steps, for many rows. A half step is one MMA of the fallback. The block-scaled MMA computes a
// whole step in the first half; the second half does nothing.

// A lane's e4m3 activations of a step of eight rows, as MMA operands.
struct ColumnsE4M3 {
  uint32_t words[kReadyWords];
  ColumnsE4M3() = default;
  __device__ __forceinline__ ColumnsE4M3(uint32_t low, uint32_t high) {
    MakeReady(low, high, words);
  }
};

template <bool kFirst>
__device__ __forceinline__ void AddUnpackedHalf(const uint32_t (&a)[4], const uint32_t* b,
                                                float (&product)[4]) {
  if constexpr (kFirst) product[0] = product[1] = product[2] = product[3] = 0;
  MmaF16(product, a[0], a[1], a[2], a[3], b[0], b[1]);
}

struct TileFp8 {
#if DSV4_BLOCK_SCALED_MMA
  uint4 a;
  TileFp8() = default;
  __device__ __forceinline__ explicit TileFp8(uint4 codes) : a(codes) {}
#else
  uint32_t a[2][4];
  TileFp8() = default;
  __device__ __forceinline__ explicit TileFp8(uint4 codes) {
    UnpackE4M3Words(codes.x, codes.y, a[0]);
    UnpackE4M3Words(codes.z, codes.w, a[1]);
  }
#endif
};
// Adds half a step to `product`. `scale` and `column_scale` are the ue8m0 codes of the tile's scale
// and of the lane's activation row, for the block-scaled MMA.
template <int kStep, int kHalf>
__device__ __forceinline__ void AddFp8Half(const TileFp8& w, const ColumnsE4M3& columns,
                                           [[maybe_unused]] uint32_t scale,
                                           [[maybe_unused]] uint32_t column_scale,
                                           float (&product)[4]) {
#if DSV4_BLOCK_SCALED_MMA
  if constexpr (kHalf == 1) return;
  if constexpr (kStep == 0) product[0] = product[1] = product[2] = product[3] = 0;
  MmaScaledE4M3(product, w.a, columns.words[0], columns.words[1], scale, column_scale);
#else
  AddUnpackedHalf<kStep == 0 && kHalf == 0>(w.a[kHalf], columns.words + 2 * kHalf, product);
#endif
}

// AddScaled for weights with f32 scales: sum += product * factor, rounded twice. `product` already
// contains the scales of its columns, which are exact.
__device__ __forceinline__ void AddMultiplied(const float (&product)[4], float factor,
                                              float (&sum)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) sum[i] = __fadd_rn(sum[i], __fmul_rn(product[i], factor));
}
__device__ __forceinline__ void MultiplyColumns(const ColumnValues& scales, float (&product)[4]) {
  product[0] *= scales.even;
  product[1] *= scales.odd;
  product[2] *= scales.even;
  product[3] *= scales.odd;
}

inline constexpr uint32_t kScaleOfOne = 127;
struct Fp8F32Operand {
  Fp8Operand codes;
  float factor;
  __device__ __forceinline__ Fp8F32Operand(const uint4 (&steps)[4], float scale)
      : codes(steps, kScaleOfOne), factor(scale) {}
};
template <bool kOneRow>
__device__ __forceinline__ void SliceProduct(const Fp8F32Operand& w, const ReadyActs& acts,
                                             uint32_t act_scale, float (&sum)[4]) {
  SliceProduct<kOneRow>(w.codes, acts, act_scale, sum);
#pragma unroll
  for (int i = 0; i < 4; ++i) sum[i] = __fmul_rn(sum[i], w.factor);
}
// A lane's scales of a K slice of an e2m1 tile, a byte a step: on SM12x those of row g or of row
// g + 8, else those of both.
#if DSV4_BLOCK_SCALED_MMA
using Fp4Scales = uint32_t;
__device__ __forceinline__ int Fp4ScaleWord(int lane) { return lane / 4 * 2 + lane % 2; }
#else
using Fp4Scales = uint2;
__device__ __forceinline__ int Fp4ScaleWord(int lane) { return lane / 4 * 2; }
#endif

#if !DSV4_BLOCK_SCALED_MMA
// The value of the scale of step kStep. The smallest, 2^-127, becomes 0.
template <int kStep>
__device__ __forceinline__ float Fp4StepScale(uint32_t codes) {
  return __uint_as_float((kStep < 3 ? codes << (23 - 8 * (kStep < 3 ? kStep : 0)) : codes >> 1) &
                         0x7f800000u);
}
#endif

// The four steps of a K slice of an e2m1 weight tile, two words a step. `scales`: from the K
// slice's scales, word Fp4ScaleWord(lane) on.
struct Fp4Operand {
  uint32_t words[8];
  Fp4Scales scales;
  __device__ __forceinline__ Fp4Operand(const uint4 (&steps)[2], Fp4Scales scale_codes)
      : words{steps[0].x, steps[0].y, steps[0].z, steps[0].w,
              steps[1].x, steps[1].y, steps[1].z, steps[1].w},
        scales(scale_codes) {}
};

// Adds the product of step kStep to sum; step 0 sets it.
template <int kStep>
__device__ __forceinline__ void AddFp4Step(const Fp4Operand& w, const ReadyActs& acts,
                                           uint32_t act_scale, float (&sum)[4]) {
  const uint32_t* b = acts.words + kStep * kReadyWords;
#if DSV4_BLOCK_SCALED_MMA
  uint32_t a[4];
  word::UnpackBytes(w.words[2 * kStep], &a[0], &a[1]);
  word::UnpackBytes(w.words[2 * kStep + 1], &a[2], &a[3]);
  if constexpr (kStep == 0) sum[0] = sum[1] = sum[2] = sum[3] = 0;
  MmaScaledE2M1<kStep>(sum, a, b[0], b[1], w.scales, act_scale);
#else
  float d[4] = {};
  uint32_t a[2][4];
  word::UnpackF16(w.words[2 * kStep], a[0]);
  word::UnpackF16(w.words[2 * kStep + 1], a[1]);
  MmaUnpacked(d, a[0], a[1], b);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float scale = Fp4StepScale<kStep>(i < 2 ? w.scales.x : w.scales.y);
    sum[i] = kStep == 0 ? d[i] * scale : __fmaf_rn(d[i], scale, sum[i]);
  }
#endif
}

template <bool kOneRow>
__device__ __forceinline__ void SliceProduct(const Fp4Operand& w, const ReadyActs& acts,
                                             uint32_t act_scale, float (&sum)[4]) {
  AddFp4Step<0>(w, acts, act_scale, sum);
  AddFp4Step<1>(w, acts, act_scale, sum);
  AddFp4Step<2>(w, acts, act_scale, sum);
  AddFp4Step<3>(w, acts, act_scale, sum);
#if !DSV4_BLOCK_SCALED_MMA
  ScaleColumns<kOneRow>(act_scale, kE2M1Factor, sum);
#endif
}

// A step of an e2m1 tile, from its two words.
struct TileFp4 {
#if DSV4_BLOCK_SCALED_MMA
  uint32_t a[4];
  TileFp4() = default;
  __device__ __forceinline__ TileFp4(uint32_t low, uint32_t high) {
    word::UnpackBytes(low, &a[0], &a[1]);
    word::UnpackBytes(high, &a[2], &a[3]);
  }
#else
  uint32_t a[2][4];
  TileFp4() = default;
  __device__ __forceinline__ TileFp4(uint32_t low, uint32_t high) {
    word::UnpackF16(low, a[0]);
    word::UnpackF16(high, a[1]);
  }
#endif
};
// Adds half a step: to `product`, or in the fallback to `of_step`, which EndFp4Step multiplies by
// the weight scales and adds to `product`.
template <int kStep, int kHalf>
__device__ __forceinline__ void AddFp4Half(const TileFp4& w, const ColumnsE4M3& columns,
                                           [[maybe_unused]] const Fp4Scales& scales,
                                           [[maybe_unused]] uint32_t column_scale,
                                           [[maybe_unused]] float (&of_step)[4],
                                           [[maybe_unused]] float (&product)[4]) {
#if DSV4_BLOCK_SCALED_MMA
  if constexpr (kHalf == 1) return;
  if constexpr (kStep == 0) product[0] = product[1] = product[2] = product[3] = 0;
  MmaScaledE2M1<kStep>(product, w.a, columns.words[0], columns.words[1], scales, column_scale);
#else
  AddUnpackedHalf<kHalf == 0>(w.a[kHalf], columns.words + 2 * kHalf, of_step);
#endif
}
template <int kStep>
__device__ __forceinline__ void EndFp4Step([[maybe_unused]] const Fp4Scales& scales,
                                           [[maybe_unused]] const float (&of_step)[4],
                                           [[maybe_unused]] float (&product)[4]) {
#if !DSV4_BLOCK_SCALED_MMA
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float scale = Fp4StepScale<kStep>(i < 2 ? scales.x : scales.y);
    product[i] = kStep == 0 ? of_step[i] * scale : __fmaf_rn(of_step[i], scale, product[i]);
  }
#endif
}

// NVFP4. A run of 16 elements shares an e4m3 scale: half a step, the elements of lanes 4 g and
// 4 g + 1 or those of lanes 4 g + 2 and 4 g + 3.
// - SM12x: the scale is no ue8m0 number, so that one MMA cannot apply both of a step. Each run is a
//   block-scaled MMA with zeros in place of the weights of the other run, and its product is
//   multiplied by the scale in f32 (docs/adr/0037-products-of-nvfp4.md).
// - Portable fallback: an e2m1 value times its scale is an f16 number.

// A lane's part of a K slice of an NVFP4 tile: the words of its codes, and for rows g and g + 8 the
// scales of its own elements' run of each step, a byte a step.
struct Nvfp4Slice {
  uint4 words[2];
  uint2 scales;
};

// The factor of the products of NVFP4 tiles.
inline constexpr float kNvfp4Factor = kE2M1Factor;

// A step of an NVFP4 tile.
struct TileNvfp4 {
  uint32_t a[2][4];  // of the runs, or of half steps times 2^-14
#if DSV4_BLOCK_SCALED_MMA
  float scales[2][2];  // of the runs, for rows g and g + 8
#endif
  TileNvfp4() = default;
  __device__ __forceinline__ TileNvfp4(const Nvfp4Slice& slice, int step) {
    const uint4 words = slice.words[step / 2];
    const uint32_t low = step % 2 == 0 ? words.x : words.z;
    const uint32_t high = step % 2 == 0 ? words.y : words.w;
    // The scales of steps 2 j and 2 j + 1 as f16x2.
    const auto pair = [&](uint32_t codes) {
      return F16x2OfE4M3x2(static_cast<uint16_t>(codes >> step / 2 * 16));
    };
#if DSV4_BLOCK_SCALED_MMA
    uint32_t codes[4];
    word::UnpackBytes(low, &codes[0], &codes[1]);
    word::UnpackBytes(high, &codes[2], &codes[3]);
    const int own_run = threadIdx.x % 4 / 2;
#pragma unroll
    for (int run = 0; run < 2; ++run) {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[run][i] = run == own_run ? codes[i] : 0;
    }
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const float2 both = FloatsOfF16x2(pair(row == 0 ? slice.scales.x : slice.scales.y));
      const float own = step % 2 == 0 ? both.x : both.y;
      const float other = __shfl_xor_sync(0xffffffffu, own, 2);
      scales[0][row] = own_run == 0 ? own : other;
      scales[1][row] = own_run == 0 ? other : own;
    }
#else
    word::UnpackF16(low, a[0]);
    word::UnpackF16(high, a[1]);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t both = pair(i % 2 == 0 ? slice.scales.x : slice.scales.y);
      const uint32_t twice = (step % 2 == 0 ? both & 0xffffu : both >> 16) * 0x10001u;
      a[0][i] = MultiplyF16x2(a[0][i], twice);
      a[1][i] = MultiplyF16x2(a[1][i], twice);
    }
#endif
  }
};

// Adds a run or a half step of step kStep to `product`, which the first one sets. `column_scale`:
// the ue8m0 code of the lane's activation row, for the block-scaled MMA.
template <int kStep, int kHalf>
__device__ __forceinline__ void AddNvfp4Half(const TileNvfp4& w, const uint32_t* b,
                                             [[maybe_unused]] uint32_t column_scale,
                                             float (&product)[4]) {
  constexpr bool kFirst = kStep == 0 && kHalf == 0;
#if DSV4_BLOCK_SCALED_MMA
  float of_run[4] = {0, 0, 0, 0};
  MmaScaledE2M1<0>(of_run, w.a[kHalf], b[0], b[1], kScaleOfOne, column_scale);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float scale = w.scales[kHalf][i / 2];
    product[i] = kFirst ? __fmul_rn(of_run[i], scale) : __fmaf_rn(of_run[i], scale, product[i]);
  }
#else
  AddUnpackedHalf<kFirst>(w.a[kHalf], b + 2 * kHalf, product);
#endif
}

// A K slice of an NVFP4 weight tile. `factor`: the tensor's scale times kNvfp4Factor.
struct Nvfp4Operand {
  Nvfp4Slice slice;
  float factor;
};
template <bool kOneRow>
__device__ __forceinline__ void SliceProduct(const Nvfp4Operand& w, const ReadyActs& acts,
                                             uint32_t act_scale, float (&sum)[4]) {
  const auto add = [&]<int kStep>(std::integral_constant<int, kStep>) {
    const TileNvfp4 tile(w.slice, kStep);
    AddNvfp4Half<kStep, 0>(tile, acts.words + kStep * kReadyWords, act_scale, sum);
    AddNvfp4Half<kStep, 1>(tile, acts.words + kStep * kReadyWords, act_scale, sum);
  };
  add(std::integral_constant<int, 0>());
  add(std::integral_constant<int, 1>());
  add(std::integral_constant<int, 2>());
  add(std::integral_constant<int, 3>());
#if !DSV4_BLOCK_SCALED_MMA
  ScaleColumns<kOneRow>(act_scale, 1, sum);
#endif
#pragma unroll
  for (int i = 0; i < 4; ++i) sum[i] = __fmul_rn(sum[i], w.factor);
}

// Half steps (K = 16) of a bf16 weight tile.
template <int kHalfSteps>
struct Bf16Operand {
  uint4 a[kHalfSteps];
  Bf16Operand() = default;
  __device__ __forceinline__ explicit Bf16Operand(const uint4 (&vectors)[kHalfSteps]) {
#pragma unroll
    for (int i = 0; i < kHalfSteps; ++i) a[i] = vectors[i];
  }
};

// sum += the product of the half steps. `b`: two words a half step.
template <int kHalfSteps>
__device__ __forceinline__ void AddProduct(const Bf16Operand<kHalfSteps>& w,
                                           const uint32_t (&b)[2 * kHalfSteps], float (&sum)[4]) {
#pragma unroll
  for (int h = 0; h < kHalfSteps; ++h) {
    const uint4 a = w.a[h];
    MmaBf16(sum, a.x, a.y, a.z, a.w, b[2 * h], b[2 * h + 1]);
  }
}
__device__ __forceinline__ void SliceProduct(const Bf16Operand<8>& w, const uint32_t (&b)[16],
                                             float (&sum)[4]) {
  sum[0] = sum[1] = sum[2] = sum[3] = 0;
  AddProduct(w, b, sum);
}

// Unpacks steps (K = 32) of an e4m3 tile to bf16 without their scale, for activations in bf16.
template <int kSteps>
__device__ __forceinline__ Bf16Operand<2 * kSteps> UnpackedToBf16(const uint4 (&steps)[kSteps]) {
  // Unpacks two codes, which `selector` sign-extends to 16 bits. With exponent and mantissa shifted
  // to their places in bf16 they have their value times 2^-120; the product corrects this.
  const auto unpack = [](uint32_t word, uint32_t selector) {
    return MultiplyBf16x2(BytesOrSigns(word, selector) << 4 & 0x87f087f0u, 0x7b807b80u);
  };
  Bf16Operand<2 * kSteps> out;
#pragma unroll
  for (int j = 0; j < kSteps; ++j) {
    // A step's words: rows g and g + 8 of the first half step, then of the second. Bytes 0 and 1 of
    // a word make the first register of its row, bytes 2 and 3 the second.
    constexpr uint32_t kFirst = 0x9180, kSecond = 0xb3a2;
    out.a[2 * j] = {unpack(steps[j].x, kFirst), unpack(steps[j].y, kFirst),
                    unpack(steps[j].x, kSecond), unpack(steps[j].y, kSecond)};
    out.a[2 * j + 1] = {unpack(steps[j].z, kFirst), unpack(steps[j].w, kFirst),
                        unpack(steps[j].z, kSecond), unpack(steps[j].w, kSecond)};
  }
  return out;
}
// The unpacked elements times an f32 scale, rounded to bf16.
template <int kSteps>
__device__ __forceinline__ Bf16Operand<2 * kSteps> RoundedToBf16(const uint4 (&steps)[kSteps],
                                                                 float scale) {
  const auto scaled = [scale](uint32_t pair) {
    return Bf16x2(__fmul_rn(__uint_as_float(pair << 16), scale),
                  __fmul_rn(__uint_as_float(pair & 0xffff0000u), scale));
  };
  Bf16Operand<2 * kSteps> out = UnpackedToBf16(steps);
#pragma unroll
  for (int i = 0; i < 2 * kSteps; ++i) {
    const uint4 a = out.a[i];
    out.a[i] = {scaled(a.x), scaled(a.y), scaled(a.z), scaled(a.w)};
  }
  return out;
}
struct Fp8UnpackedOperand {
  uint32_t scale;
  Bf16Operand<8> unpacked;
  __device__ __forceinline__ Fp8UnpackedOperand(const uint4 (&steps)[4], uint32_t scale_code)
      : scale(scale_code), unpacked(UnpackedToBf16(steps)) {}
};
__device__ __forceinline__ void SliceProduct(const Fp8UnpackedOperand& w, const uint32_t (&b)[16],
                                             float (&sum)[4]) {
  SliceProduct(w.unpacked, b, sum);
  const float value = ScaleValue(w.scale);
#pragma unroll
  for (int i = 0; i < 4; ++i) sum[i] *= value;
}

}  // namespace dsv4::sm12x
