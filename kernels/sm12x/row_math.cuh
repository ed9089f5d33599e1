// SPDX-License-Identifier: Apache-2.0
// Arithmetic on rows for the attention operators, in f32, one row of 512 or 128 elements by one
// warp: RMSNorm, RoPE, the Hadamard rotation, the quantisers and the cache row formats.
//
// Lane l holds elements 8 l .. 8 l + 7 of each half of a row of 512, and elements 4 l .. 4 l + 3 of
// a row of 128.
#pragma once

#include "kernels/op/kv_layout.h"
#include "kernels/sm12x/arch/fragments.cuh"
#include "kernels/sm12x/arch/numbers.cuh"
#include "kernels/sm12x/bf16.cuh"
#include "kernels/sm12x/norm_row.cuh"
#include "kernels/sm12x/quantized_rows.cuh"
#include "lib/tensor/quant_format.h"

namespace dsv4::sm12x {

inline constexpr unsigned kAllLanes = 0xffffffffu;

// Rotates a pair of elements, bf16 numbers, by one angle, and rounds to bf16.
__device__ __forceinline__ void Rotate(float* a, float* b, float cosine, float sine) {
  const float x = *a, y = *b;
  *a = RoundBf16(__fmaf_rn(x, cosine, -__fmul_rn(y, sine)));
  *b = RoundBf16(__fmaf_rn(x, sine, __fmul_rn(y, cosine)));
}

// RoPE of the last 64 elements of a row of 512, whose second half is `x`. `table` is 32 cosines, 32
// sines.
__device__ __forceinline__ void RotateTail(float (&x)[8], const float* table, int lane) {
  if (lane < 24) return;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int pair = (lane - 24) * 4 + i;
    Rotate(&x[2 * i], &x[2 * i + 1], table[pair], table[32 + pair]);
  }
}

// Rotates the last 64 elements of a row of 128.
__device__ __forceinline__ void RotateTail(float (&x)[4], const float* table, int lane) {
  if (lane < 16) return;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int pair = (lane - 16) * 2 + i;
    Rotate(&x[2 * i], &x[2 * i + 1], table[pair], table[32 + pair]);
  }
}

// Walsh-Hadamard transform of a row of 128 times 128^-0.5, rounded to bf16. Sums of bf16 numbers
// are exact in f32 unless their exponents differ by 10 or more.
__device__ __forceinline__ void Hadamard(float (&x)[4], int lane) {
#pragma unroll
  for (int half = 1; half < 4; half *= 2) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & half) != 0) continue;
      const float a = x[i], b = x[i + half];
      x[i] = a + b;
      x[i + half] = a - b;
    }
  }
#pragma unroll
  for (int half = 1; half < 32; half *= 2) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float other = __shfl_xor_sync(kAllLanes, x[i], half);
      x[i] = (lane & half) != 0 ? other - x[i] : x[i] + other;
    }
  }
  constexpr float kScale = 0.0883883476f;  // 128^-0.5
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = RoundBf16(__fmul_rn(x[i], kScale));
}

// The largest magnitude over eight neighbouring lanes; a NaN is the largest.
template <int kCount>
__device__ __forceinline__ float LargestOfRun(const float (&x)[kCount]) {
  uint32_t largest = 0;  // magnitudes have the order of their bits
#pragma unroll
  for (int i = 0; i < kCount; ++i) largest = max(largest, __float_as_uint(x[i]) & 0x7fffffffu);
#pragma unroll
  for (int offset = 4; offset > 0; offset /= 2) {
    largest = max(largest, __shfl_xor_sync(kAllLanes, largest, offset));
  }
  return __uint_as_float(largest);
}

// The scale of a run that holds a NaN or an infinity, so that its dequantised values are not
// finite.
inline constexpr uint32_t kBrokenScale = 255;

__device__ __forceinline__ bool IsFinite(float x) { return fabsf(x) < INFINITY; }

// The e2m1 code nearest to `value`, ties to even; the largest magnitude beyond 6 and for NaN.
__device__ __forceinline__ uint32_t EncodeE2M1(float value) {
  const uint32_t bits = __float_as_uint(value), sign = bits >> 28 & 8u;
  const float magnitude = fabsf(value);
  if (!(magnitude < 6.0f)) return sign | 7u;
  // Codes below 1 count steps of 0.5, the spacing of floats from 2^22 on.
  if (magnitude < 1.0f) {
    return sign | (__float_as_uint(__fadd_rn(magnitude, 0x1p22f)) - 0x4a800000u);
  }
  const uint32_t rounded =
      ((bits & 0x7fffffffu) + 0x1fffffu + ((bits >> 22) & 1u)) >> 22;  // to one bit of mantissa
  return sign | (rounded - (126u << 1));
}

__device__ __forceinline__ float DecodeE2M1(uint32_t code) {
  const uint32_t m = code & 7u;
  const float magnitude =
      m < 2 ? static_cast<float>(m) * 0.5f : __uint_as_float((126u << 23) + (m << 22));
  return (code & 8u) != 0 ? -magnitude : magnitude;
}

// fp4_act_quant of a row of 128: codes, and the ue8m0 scale of the lane's run of 32.
__device__ __forceinline__ uint32_t QuantizeFp4(const float (&x)[4], uint32_t (&codes)[4]) {
  const float largest = LargestOfRun(x);
  const uint32_t bits = __float_as_uint(__fdiv_rn(fmaxf(largest, 6 * 0x1p-126f), 6.0f));
  const uint32_t scale =
      IsFinite(largest) ? (bits >> 23) + ((bits & 0x7fffffu) != 0 ? 1 : 0) : kBrokenScale;
  const float inverse = __uint_as_float((254 - scale) << 23);
#pragma unroll
  for (int i = 0; i < 4; ++i) codes[i] = EncodeE2M1(__fmul_rn(x[i], inverse));
  return scale;
}

// Writes a row of 128 in kIndexFp4.
__device__ __forceinline__ void StoreIndexKey(const float (&x)[4], const RowPool& pool,
                                              int32_t block, int64_t slot, int lane) {
  uint32_t code[4];
  const uint32_t scale = QuantizeFp4(x, code);
  auto* data = reinterpret_cast<uint16_t*>(pool.Row(block, slot));
  data[lane] = static_cast<uint16_t>(code[0] | code[1] << 4 | code[2] << 8 | code[3] << 12);
  if (lane % 8 == 0) pool.Scales(block, slot)[lane / 8] = static_cast<std::byte>(scale);
}

// e4m3 codes of eight elements of rows and queries, with kFp8RowScale.
__device__ __forceinline__ uint2 Fp8Codes(const float (&x)[8]) {
  uint32_t codes[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    codes[i] = E4M3x2(x[2 * i] * (1 / kFp8RowScale), x[2 * i + 1] * (1 / kFp8RowScale));
  }
  return make_uint2(codes[0] | codes[1] << 16, codes[2] | codes[3] << 16);
}

// Rounds eight elements of a query over kFp8PerTensor rows to e4m3.
__device__ __forceinline__ void QuantizeQuery(float (&x)[8]) {
  const uint2 codes = Fp8Codes(x);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t word = i < 2 ? codes.x : codes.y;
    const float2 pair = FloatsOfF16x2(F16x2OfE4M3x2(static_cast<uint16_t>(word >> i % 2 * 16)));
    x[2 * i] = pair.x * kFp8RowScale;
    x[2 * i + 1] = pair.y * kFp8RowScale;
  }
}

// Writes a row of 512 in kFp8PerTensor.
__device__ __forceinline__ void StoreFp8Row(const float (&x)[2][8], std::byte* row, int lane) {
  bool broken = false;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int i = 0; i < 8; ++i) broken = broken || !IsFinite(x[half][i]);
  }
  broken = __any_sync(kAllLanes, broken) != 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    *reinterpret_cast<uint2*>(row + half * 256 + lane * 8) =
        broken ? make_uint2(0x7f7f7f7f, 0x7f7f7f7f) : Fp8Codes(x[half]);
  }
}

// Writes half `half` of a row of 512 in kPacked or kBf16, the first 448 elements through act_quant.
__device__ __forceinline__ void StoreKvHalf(const float (&x)[8], int half, const RowPool& pool,
                                            int32_t block, int64_t slot, int lane) {
  const int column = half * 256 + lane * 8;
  const bool quantised = column < kKvRowElements - kKvRopeElements;
  const float largest = LargestOfRun(x);
  const uint32_t scale = IsFinite(largest) ? QuantScale(largest) : kBrokenScale;
  const float inverse = InverseQuantScale(scale);
  uint16_t codes[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) codes[i] = E4M3x2(x[2 * i] * inverse, x[2 * i + 1] * inverse);
  std::byte* row = pool.Row(block, slot);
  if (pool.format == RowFormat::kPacked) {
    if (lane % 8 == 0) {
      pool.Scales(block, slot)[column / kKvQuantRun] =
          static_cast<std::byte>(quantised ? scale : 0);
    }
    if (quantised) {
      *reinterpret_cast<uint2*>(row + column) =
          make_uint2(codes[0] | static_cast<uint32_t>(codes[1]) << 16,
                     codes[2] | static_cast<uint32_t>(codes[3]) << 16);
    } else {
      constexpr int kPlain = kKvRowElements - kKvRopeElements;
      StoreBf16x8(x, reinterpret_cast<uint16_t*>(row + kPlain) + (column - kPlain));
    }
    return;
  }
  float out[8];
  const float factor = __uint_as_float(scale << 23);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = FloatsOfF16x2(F16x2OfE4M3x2(codes[i]));
    out[2 * i] = quantised ? pair.x * factor : x[2 * i];
    out[2 * i + 1] = quantised ? pair.y * factor : x[2 * i + 1];
  }
  StoreBf16x8(out, reinterpret_cast<uint16_t*>(row) + column);
}

// RMSNorm and RoPE of a row of 512, then writes it to the cache: the last part of window rows and
// of compressed rows. `x` holds bf16 numbers and is overwritten.
__device__ __forceinline__ void NormRopeStoreKvRow(float (&x)[2][8], const uint16_t* norm,
                                                   float eps, const float* rope,
                                                   const RowPool& pool, int32_t block, int64_t slot,
                                                   int lane) {
  const float squares = WarpSum(SquaresOf(x[1], SquaresOf(x[0], 0)));
  const float inverse = InverseRms(squares, kKvRowElements, eps);
#pragma unroll
  for (int half = 0; half < 2; ++half) Normalize(x[half], inverse, norm + half * 256 + lane * 8);
  RotateTail(x[1], rope, lane);
  if (pool.format == RowFormat::kFp8PerTensor) return StoreFp8Row(x, pool.Row(block, slot), lane);
#pragma unroll
  for (int half = 0; half < 2; ++half) StoreKvHalf(x[half], half, pool, block, slot, lane);
}

}  // namespace dsv4::sm12x
