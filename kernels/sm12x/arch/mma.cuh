// SPDX-License-Identifier: Apache-2.0
// Products of a tile of 16 weight rows and a tile of 8 activation rows over K = 32, f32, from zero:
// bf16 by mma.sync m16n8k16; e4m3 and e2m1 weights by e4m3 activations with ue8m0 scales by the
// block-scaled mma.sync of SM12x, and where the target lacks it by its twin: codes widened to f16,
// which is exact, two m16n8k16, and the scales multiplied on afterwards. Fragments of both are
// those of packed_layout.h. Lane 4 g + t gets rows g, g, g + 8, g + 8 and columns 2 t, 2 t + 1, 2
// t, 2 t + 1.
#pragma once

#include <cstdint>

#include "kernels/sm12x/arch/e2m1_words.cuh"
#include "kernels/sm12x/arch/mma_instructions.cuh"
#include "kernels/sm12x/arch/numbers.cuh"
#include "kernels/sm12x/arch/target.cuh"
#include "kernels/sm12x/two_float.cuh"

namespace dsv4::sm12x {

// The value of a ue8m0 scale.
__device__ __forceinline__ float ScaleValue(uint32_t scale) {
  return __uint_as_float(max(scale << 23, 0x00400000u));
}

// A chain's e4m3 activations of a lane, two words of codes a step, as products want them: on SM12x
// as they are, else as f16. A step's eight are kReadyWords words.
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
  to[1] = F16x2OfE4M3x2(static_cast<uint16_t>(low >> 16));
  to[2] = F16x2OfE4M3x2(static_cast<uint16_t>(high));
  to[3] = F16x2OfE4M3x2(static_cast<uint16_t>(high >> 16));
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

// In the products below, `act_scale` is the ue8m0 scale of the chain of activation row lane / 4,
// and all lanes of the warp take part. kOneRow: it is row 0's in every lane, and only column 0, of
// lanes 4 g, is wanted.

#if !DSV4_BLOCK_SCALED_MMA
// sum times the scales of this lane's columns, which lanes 8 t and 8 t + 4 hold.
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

// d = a b over K = 32, unscaled, of the widened words of both half steps.
__device__ __forceinline__ void MmaWidened(float (&d)[4], const uint32_t (&a0)[4],
                                           const uint32_t (&a1)[4], const uint32_t* b) {
  d[0] = d[1] = d[2] = d[3] = 0;
  MmaF16(d, a0[0], a0[1], a0[2], a0[3], b[0], b[1]);
  MmaF16(d, a1[0], a1[1], a1[2], a1[3], b[2], b[3]);
}
#endif

// The four steps of a chain of an e4m3 weight tile that has one scale.
struct Fp8Operand {
  uint4 steps[4];
  uint32_t scale;
  __device__ __forceinline__ Fp8Operand(const uint4 (&codes)[4], uint32_t scale_code)
      : steps{codes[0], codes[1], codes[2], codes[3]}, scale(scale_code) {}
};

#if !DSV4_BLOCK_SCALED_MMA
__device__ __forceinline__ void WidenE4M3Words(uint32_t low, uint32_t high, uint32_t (&to)[4]) {
  to[0] = F16x2OfE4M3x2(static_cast<uint16_t>(low));
  to[1] = F16x2OfE4M3x2(static_cast<uint16_t>(high));
  to[2] = F16x2OfE4M3x2(static_cast<uint16_t>(low >> 16));
  to[3] = F16x2OfE4M3x2(static_cast<uint16_t>(high >> 16));
}
#endif

// sum = the chain's product: its four steps' in ascending order, in f32.
template <bool kOneRow>
__device__ __forceinline__ void ChainProduct(const Fp8Operand& w, const ReadyActs& acts,
                                             uint32_t act_scale, float (&sum)[4]) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    float d[4] = {};
    const uint32_t* b = acts.words + j * kReadyWords;
#if DSV4_BLOCK_SCALED_MMA
    MmaScaledE4M3(d, w.steps[j], b[0], b[1], w.scale, act_scale);
#else
    uint32_t a[2][4];
    WidenE4M3Words(w.steps[j].x, w.steps[j].y, a[0]);
    WidenE4M3Words(w.steps[j].z, w.steps[j].w, a[1]);
    MmaWidened(d, a[0], a[1], b);
#endif
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] = j == 0 ? d[i] : __fadd_rn(sum[i], d[i]);
  }
#if !DSV4_BLOCK_SCALED_MMA
  ScaleColumns<kOneRow>(act_scale, ScaleValue(w.scale), sum);
#endif
}

// The scales that a lane holds of a chain of an e2m1 tile, a byte a step: on SM12x those of row g
// or g + 8, else of both.
#if DSV4_BLOCK_SCALED_MMA
using Fp4Scales = uint32_t;
__device__ __forceinline__ int Fp4ScaleWord(int lane) { return lane / 4 * 2 + lane % 2; }
#else
using Fp4Scales = uint2;
__device__ __forceinline__ int Fp4ScaleWord(int lane) { return lane / 4 * 2; }
#endif

// The four steps of a chain of an e2m1 weight tile, two words a step. `scales`: the chain's from
// word Fp4ScaleWord(lane).
struct Fp4Operand {
  uint32_t words[8];
  Fp4Scales scales;
  __device__ __forceinline__ Fp4Operand(const uint4 (&steps)[2], Fp4Scales scale_codes)
      : words{steps[0].x, steps[0].y, steps[0].z, steps[0].w,
              steps[1].x, steps[1].y, steps[1].z, steps[1].w},
        scales(scale_codes) {}
};

// sum = or += the product of step kStep.
template <int kStep>
__device__ __forceinline__ void AddFp4Step(const Fp4Operand& w, const ReadyActs& acts,
                                           uint32_t act_scale, float (&sum)[4]) {
  float d[4] = {};
  const uint32_t* b = acts.words + kStep * kReadyWords;
#if DSV4_BLOCK_SCALED_MMA
  uint32_t a[4];
  word::UnpackBytes(w.words[2 * kStep], &a[0], &a[1]);
  word::UnpackBytes(w.words[2 * kStep + 1], &a[2], &a[3]);
  MmaScaledE2M1<kStep>(d, a, b[0], b[1], w.scales, act_scale);
#pragma unroll
  for (int i = 0; i < 4; ++i) sum[i] = kStep == 0 ? d[i] : __fadd_rn(sum[i], d[i]);
#else
  uint32_t a[2][4];
  word::UnpackF16(w.words[2 * kStep], a[0]);
  word::UnpackF16(w.words[2 * kStep + 1], a[1]);
  MmaWidened(d, a[0], a[1], b);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    // 2^-127, the smallest scale, counts as nothing here.
    const uint32_t codes = i < 2 ? w.scales.x : w.scales.y;
    const float scale = __uint_as_float(
        (kStep < 3 ? codes << (23 - 8 * (kStep < 3 ? kStep : 0)) : codes >> 1) & 0x7f800000u);
    sum[i] = kStep == 0 ? d[i] * scale : __fmaf_rn(d[i], scale, sum[i]);
  }
#endif
}

template <bool kOneRow>
__device__ __forceinline__ void ChainProduct(const Fp4Operand& w, const ReadyActs& acts,
                                             uint32_t act_scale, float (&sum)[4]) {
  AddFp4Step<0>(w, acts, act_scale, sum);
  AddFp4Step<1>(w, acts, act_scale, sum);
  AddFp4Step<2>(w, acts, act_scale, sum);
  AddFp4Step<3>(w, acts, act_scale, sum);
#if !DSV4_BLOCK_SCALED_MMA
  ScaleColumns<kOneRow>(act_scale, kE2M1Factor, sum);
#endif
}

// The four steps of a chain of a bf16 weight tile, two half steps each.
struct Bf16Operand {
  uint4 a[8];
  Bf16Operand() = default;
  __device__ __forceinline__ Bf16Operand(const uint4 (&vectors)[8]) {
#pragma unroll
    for (int i = 0; i < 8; ++i) a[i] = vectors[i];
  }
};

// The upper four of the eight bits that two bf16 numbers have each, and the lower.
__device__ __forceinline__ uint32_t UpperBits(uint32_t pair) { return pair & 0xfff0fff0u; }
__device__ __forceinline__ uint32_t LowerBits(uint32_t pair) {
  return SubtractBf16x2(pair, UpperBits(pair));
}

// sum = the chain's product. The tensor cores cut the sum of a step's products off below about
// 2^-24 of the largest: products of all 16 bits would carry that noise into every output. So
// factors are split: products of upper bits mostly sum up exactly, and the noise of the others is
// 2^-4 of theirs. kSplitWeights: not needed where the weights have no more than four bits. `b`: two
// words a half step.
template <bool kSplitWeights>
__device__ __forceinline__ void SplitChainProduct(const Bf16Operand& w, const uint32_t (&b)[16],
                                                  TwoFloat (&sum)[4]) {
  float minor[4] = {};
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    float major[4] = {};
#pragma unroll
    for (int h = 2 * j; h < 2 * j + 2; ++h) {
      const uint4 a = w.a[h];
      const uint32_t upper0 = UpperBits(b[2 * h]), upper1 = UpperBits(b[2 * h + 1]);
      if constexpr (kSplitWeights) {
        MmaBf16(major, UpperBits(a.x), UpperBits(a.y), UpperBits(a.z), UpperBits(a.w), upper0,
                upper1);
        MmaBf16(minor, LowerBits(a.x), LowerBits(a.y), LowerBits(a.z), LowerBits(a.w), upper0,
                upper1);
      } else {
        MmaBf16(major, a.x, a.y, a.z, a.w, upper0, upper1);
      }
      MmaBf16(minor, a.x, a.y, a.z, a.w, LowerBits(b[2 * h]), LowerBits(b[2 * h + 1]));
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sum[i] = {j == 0 ? major[i] : __fadd_rn(sum[i].hi, major[i]), 0.0f};
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) sum[i].Add(minor[i]);
}
__device__ __forceinline__ void ChainProduct(const Bf16Operand& w, const uint32_t (&b)[16],
                                             TwoFloat (&sum)[4]) {
  SplitChainProduct<true>(w, b, sum);
}

// The same of an e4m3 tile with one scale, widened to bf16, for activations that are not quantised.
struct Fp8WidenedOperand {
  uint32_t scale;
  Bf16Operand widened;  // without the scale
  __device__ __forceinline__ Fp8WidenedOperand(const uint4 (&steps)[4], uint32_t scale_code)
      : scale(scale_code) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      // A step's words: row g and row g + 8 of the first half step, then of the second. A word's
      // bytes 0, 1 are the first register of its row, 2, 3 the second; each with its sign above it.
      constexpr uint32_t kFirst = 0x9180, kSecond = 0xb3a2;
      widened.a[2 * j] = {Widen(steps[j].x, kFirst), Widen(steps[j].y, kFirst),
                          Widen(steps[j].x, kSecond), Widen(steps[j].y, kSecond)};
      widened.a[2 * j + 1] = {Widen(steps[j].z, kFirst), Widen(steps[j].w, kFirst),
                              Widen(steps[j].z, kSecond), Widen(steps[j].w, kSecond)};
    }
  }
  // Two codes, which `selector` extends to 16 bits by their signs, as bf16: sign, exponent and
  // mantissa shifted to their places are the value times 2^-120, which the product makes good.
  static __device__ __forceinline__ uint32_t Widen(uint32_t word, uint32_t selector) {
    return MultiplyBf16x2(BytesOrSigns(word, selector) << 4 & 0x87f087f0u, 0x7b807b80u);
  }
};

__device__ __forceinline__ void ChainProduct(const Fp8WidenedOperand& w, const uint32_t (&b)[16],
                                             TwoFloat (&sum)[4]) {
  SplitChainProduct<false>(w.widened, b, sum);
  const float value = ScaleValue(w.scale);
#pragma unroll
  for (int i = 0; i < 4; ++i) sum[i] = {sum[i].hi * value, sum[i].lo * value};
}

}  // namespace dsv4::sm12x
