// SPDX-License-Identifier: Apache-2.0
// SIMD pieces that several operators share, included once per Highway target (inside a
// foreach_target file, after hwy/highway.h): bf16 loads and stores, rounding to bf16, the act_quant
// round trip and silu. Every function is elementwise or of a fixed order, so its bits do not depend
// on where a value lies in a row.

#if defined(DSV4_KERNELS_CPU_QUANTIZE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DSV4_KERNELS_CPU_QUANTIZE_INL_H_
#undef DSV4_KERNELS_CPU_QUANTIZE_INL_H_
#else
#define DSV4_KERNELS_CPU_QUANTIZE_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstdint>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace dsv4 {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Lanes(df) bf16 values as f32. `df` is any f32 tag; `p` needs 2-byte alignment only.
template <class DF>
HWY_INLINE hn::Vec<DF> LoadBf16(DF df, const uint16_t* HWY_RESTRICT p) {
  const hn::Rebind<uint16_t, DF> du16;
  const hn::RebindToUnsigned<DF> du32;
  return hn::BitCast(df, hn::ShiftLeft<16>(hn::PromoteTo(du32, hn::LoadU(du16, p))));
}

// The bf16 bits of each lane (round to nearest even) in the upper half of the lane. Infinities and
// the processor's default NaN do not change.
template <class DF>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> Bf16Bits(DF /*tag*/, hn::Vec<DF> v) {
  const hn::RebindToUnsigned<DF> du32;
  const auto bits = hn::BitCast(du32, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du32, 1u));
  return hn::Add(bits, hn::Add(odd, hn::Set(du32, 0x7fffu)));
}

// Each lane rounded to bf16, as f32.
template <class DF>
HWY_INLINE hn::Vec<DF> RoundBf16(DF df, hn::Vec<DF> v) {
  const hn::RebindToUnsigned<DF> du32;
  return hn::BitCast(df, hn::And(Bf16Bits(df, v), hn::Set(du32, 0xffff0000u)));
}

// Stores Lanes(df) values as bf16, rounded to nearest even.
template <class DF>
HWY_INLINE void StoreBf16(hn::Vec<DF> v, DF df, uint16_t* HWY_RESTRICT p) {
  const hn::Rebind<uint16_t, DF> du16;
  hn::StoreU(hn::TruncateTo(du16, hn::ShiftRight<16>(Bf16Bits(df, v))), du16, p);
}

// Rounds to e4m3 (nearest even, subnormals included). REQUIRES: |v| <= 448.
template <class DF>
HWY_INLINE hn::Vec<DF> RoundE4M3(DF df, hn::Vec<DF> v) {
  const hn::RebindToUnsigned<DF> du32;
  // Adding and subtracting 2^(e + 20), whose last place is 2^(e - 3), leaves 3 bits of mantissa;
  // below 2^-6 the step stays 2^-9.
  const auto magnitude = hn::Abs(v);
  const auto exponent = hn::Max(hn::And(hn::BitCast(du32, magnitude), hn::Set(du32, 0x7f800000u)),
                                hn::Set(du32, 0x3c800000u));
  const auto magic = hn::BitCast(df, hn::Add(exponent, hn::Set(du32, 20u << 23)));
  return hn::CopySign(hn::Sub(hn::Add(magnitude, magic), magic), v);
}

// The power of two by which act_quant divides a run whose largest magnitude is `amax`.
HWY_INLINE float ActQuantScale(float amax) {
  const uint32_t bits = std::bit_cast<uint32_t>(std::max(amax, 1e-4f) / 448.0f);
  return std::bit_cast<float>((bits + 0x7fffffu) & 0x7f800000u);
}

// act_quant round trip of one run: `x` [n] f32 (already rounded as the contract says) to `out` [n]
// bf16, quantised and dequantised. n is a multiple of 16. REQUIRES: finite values.
HWY_INLINE void ActQuantRun(const float* HWY_RESTRICT x, int64_t n, uint16_t* HWY_RESTRICT out) {
  const hn::CappedTag<float, 16> df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  auto amax_lanes = hn::Zero(df);
  for (int64_t i = 0; i < n; i += lanes) {
    amax_lanes = hn::Max(amax_lanes, hn::Abs(hn::LoadU(df, x + i)));
  }
  const float scale = ActQuantScale(hn::GetLane(hn::MaxOfLanes(df, amax_lanes)));
  // Both are powers of two in the normal range, so the products below are exact divisions.
  const auto to_quantised = hn::Set(df, 1.0f / scale), from_quantised = hn::Set(df, scale);
  const auto limit = hn::Set(df, 448.0f), minus_limit = hn::Set(df, -448.0f);
  for (int64_t i = 0; i < n; i += lanes) {
    const auto v = hn::Clamp(hn::Mul(hn::LoadU(df, x + i), to_quantised), minus_limit, limit);
    StoreBf16(hn::Mul(RoundE4M3(df, v), from_quantised), df, out + i);
  }
}

// x * sigmoid(x) in double, with the error of Highway's Exp (about one unit in the last place).
template <class DD>
HWY_INLINE hn::Vec<DD> Silu(DD dd, hn::Vec<DD> x) {
  // Highway's Exp holds up to 706; from there on the result is 0 in f32.
  const auto power = hn::Min(hn::Neg(x), hn::Set(dd, 700.0));
  return hn::Div(x, hn::Add(hn::Set(dd, 1.0), hn::Exp(dd, power)));
}

}  // namespace HWY_NAMESPACE
}  // namespace dsv4
HWY_AFTER_NAMESPACE();

#endif  // DSV4_KERNELS_CPU_QUANTIZE_INL_H_
