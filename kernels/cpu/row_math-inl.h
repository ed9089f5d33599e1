// SPDX-License-Identifier: Apache-2.0
// SIMD arithmetic on one row of bf16 activations: load and store with rounding, exponential,
// RMSNorm, RoPE, Hadamard rotation and the quantiser round trips of model.md section 3. Included
// once per Highway target, after foreach_target.h. Every sum has a fixed order that depends on the
// row's length alone.
//
// bf16 rows are read as 32-bit lanes that hold two neighbours: the low half is the even element,
// the high half the odd one. Conversion to f32 is then a shift and a mask, RoPE pairs lie side by
// side, and nothing is shuffled. Little-endian only.
//
// Values that are rounded to bf16 are computed in double, then rounded to f32 and to bf16, as in
// the reference backend. The error of an f32 result would sometimes change the bf16 rounding, and
// in front of a quantiser that becomes a step of 6 %.

#if defined(DSV4_KERNELS_CPU_ROW_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DSV4_KERNELS_CPU_ROW_MATH_INL_H_
#undef DSV4_KERNELS_CPU_ROW_MATH_INL_H_
#else
#define DSV4_KERNELS_CPU_ROW_MATH_INL_H_
#endif

#include <cmath>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace dsv4 {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
using DU = hn::RebindToUnsigned<DF>;
using VF = hn::Vec<DF>;
using VU = hn::Vec<DU>;
constexpr int64_t kLanes = hn::MaxLanes(DF());
constexpr int64_t kPairLanes = 2 * kLanes;  // elements of one VPair

// 2 * kLanes neighbouring elements: the even and the odd ones.
struct VPair {
  VF even, odd;
};

HWY_INLINE VU LoadBits(const uint16_t* p) {
#if HWY_TARGET == HWY_SCALAR
  uint32_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return hn::Set(DU(), bits);
#else
  return hn::LoadU(DU(), reinterpret_cast<const uint32_t*>(p));
#endif
}

HWY_INLINE void StoreBits(VU v, uint16_t* p) {
#if HWY_TARGET == HWY_SCALAR
  const uint32_t bits = hn::GetLane(v);
  std::memcpy(p, &bits, sizeof bits);
#else
  hn::StoreU(v, DU(), reinterpret_cast<uint32_t*>(p));
#endif
}

HWY_INLINE VPair UnpackBf16(VU bits) {
  return {hn::BitCast(DF(), hn::ShiftLeft<16>(bits)),
          hn::BitCast(DF(), hn::And(bits, hn::Set(DU(), 0xffff0000u)))};
}

HWY_INLINE VPair LoadPair(const uint16_t* p) { return UnpackBf16(LoadBits(p)); }

// The bits of a vector of floats after rounding to nearest even at bit 16; the low half is garbage.
// A NaN stays one: arithmetic makes none whose payload lies in the low half alone.
template <class V>
HWY_INLINE auto RoundedBits(V v) {
  const hn::RebindToUnsigned<hn::DFromV<V>> du;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  return hn::Add(hn::Add(bits, hn::Set(du, 0x7fff)), odd);
}

// Rounds to bf16 and stores.
HWY_INLINE void StorePair(VPair v, uint16_t* p) {
  const VU high = hn::And(RoundedBits(v.odd), hn::Set(DU(), 0xffff0000u));
  StoreBits(hn::Or(hn::ShiftRight<16>(RoundedBits(v.even)), high), p);
}

// Doubles, as many as fill a vector, and the vectors of floats that convert to them.
using DD = hn::CappedTag<double, 8>;
using VD = hn::Vec<DD>;
using DHalf = hn::Rebind<float, DD>;
using DHalfBits = hn::Rebind<uint32_t, DD>;
constexpr int64_t kDoubleLanes = hn::MaxLanes(DD());
constexpr int64_t kDoublePairLanes = 2 * kDoubleLanes;  // elements of one DoublePair

// 2 * kDoubleLanes neighbouring elements: the even and the odd ones.
struct DoublePair {
  VD even, odd;
};

HWY_INLINE VD LoadDouble(const float* p) { return hn::PromoteTo(DD(), hn::LoadU(DHalf(), p)); }

HWY_INLINE VD LoadDouble(const uint16_t* p) {
  const hn::Rebind<uint16_t, DD> du16;
  const auto bits = hn::ShiftLeft<16>(hn::PromoteTo(DHalfBits(), hn::LoadU(du16, p)));
  return hn::PromoteTo(DD(), hn::BitCast(DHalf(), bits));
}

HWY_INLINE VD RoundToFloat(VD v) { return hn::PromoteTo(DD(), hn::DemoteTo(DHalf(), v)); }

HWY_INLINE void StoreDouble(VD v, float* p) { hn::StoreU(hn::DemoteTo(DHalf(), v), DHalf(), p); }

// Rounds to bf16 and stores.
HWY_INLINE void StoreDouble(VD v, uint16_t* p) {
  const hn::Rebind<uint16_t, DD> du16;
  const auto bits = hn::ShiftRight<16>(RoundedBits(hn::DemoteTo(DHalf(), v)));
  hn::StoreU(hn::TruncateTo(du16, bits), du16, p);
}

HWY_INLINE DoublePair LoadDoublePair(const uint16_t* p) {
#if HWY_TARGET == HWY_SCALAR
  const VPair v = LoadPair(p);
  return {hn::PromoteTo(DD(), v.even), hn::PromoteTo(DD(), v.odd)};
#else
  const DHalfBits du;
  const auto bits = hn::LoadU(du, reinterpret_cast<const uint32_t*>(p));
  const auto even = hn::BitCast(DHalf(), hn::ShiftLeft<16>(bits));
  const auto odd = hn::BitCast(DHalf(), hn::And(bits, hn::Set(du, 0xffff0000u)));
  return {hn::PromoteTo(DD(), even), hn::PromoteTo(DD(), odd)};
#endif
}

// Rounds to bf16 and stores.
HWY_INLINE void StoreDoublePair(DoublePair v, uint16_t* p) {
#if HWY_TARGET == HWY_SCALAR
  StorePair({hn::DemoteTo(DHalf(), v.even), hn::DemoteTo(DHalf(), v.odd)}, p);
#else
  const DHalfBits du;
  const auto even = hn::ShiftRight<16>(RoundedBits(hn::DemoteTo(DHalf(), v.even)));
  const auto odd = RoundedBits(hn::DemoteTo(DHalf(), v.odd));
  hn::StoreU(hn::Or(even, hn::And(odd, hn::Set(du, 0xffff0000u))), du,
             reinterpret_cast<uint32_t*>(p));
#endif
}

// exp(x) for x <= 0, relative error below 1e-14; 0 below -708, where the result would be subnormal.
HWY_INLINE VD ExpNonPositive(VD x) {
  const DD d;
  const hn::RebindToSigned<DD> di;
  const VD magic = hn::Set(d, 6755399441055744.0);
  const VD shifted = hn::MulAdd(x, hn::Set(d, 1.4426950408889634), magic);
  const VD n = hn::Sub(shifted, magic);
  VD r = hn::NegMulAdd(n, hn::Set(d, 0x1.62e42feep-1), x);
  r = hn::NegMulAdd(n, hn::Set(d, 0x1.a39ef35793c76p-33), r);
  // Taylor: |r| <= ln(2) / 2, so that the first term left out is below 1e-14.
  VD p = hn::Set(d, 1.0 / 39916800);
  for (const double c : {1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120,
                         1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0}) {
    p = hn::MulAdd(p, r, hn::Set(d, c));
  }
  const auto exponent = hn::ShiftLeft<52>(hn::BitCast(di, shifted));
  const VD e = hn::BitCast(d, hn::Add(hn::BitCast(di, p), exponent));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -708.0)), e);
}

HWY_INLINE VD Sigmoid(VD x) {
  const DD d;
  const VD one = hn::Set(d, 1.0);
  const VD e = ExpNonPositive(hn::Neg(hn::Abs(x)));
  return hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one), hn::Add(one, e));
}

HWY_INLINE double SumOfLanes(VD v) { return hn::GetLane(hn::SumOfLanes(DD(), v)); }

// sum of x^2; n a multiple of 128.
HWY_INLINE double SumOfSquares(const uint16_t* HWY_RESTRICT x, int64_t n) {
  const DD d;
  VD s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  for (int64_t i = 0; i < n; i += 2 * kDoublePairLanes) {
    const DoublePair a = LoadDoublePair(x + i), b = LoadDoublePair(x + i + kDoublePairLanes);
    s0 = hn::MulAdd(a.even, a.even, s0);
    s1 = hn::MulAdd(a.odd, a.odd, s1);
    s2 = hn::MulAdd(b.even, b.even, s2);
    s3 = hn::MulAdd(b.odd, b.odd, s3);
  }
  return SumOfLanes(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
}

inline double InverseRms(double sum_of_squares, int64_t n, float eps) {
  return 1 / std::sqrt(sum_of_squares / static_cast<double>(n) + eps);
}

// The power of two s = 2^ceil(log2(amax * inverse_limit)) of a quantiser, and 1 / s.
struct QuantScale {
  VF scale, inverse;
};

HWY_INLINE QuantScale ScaleOf(VF amax, float inverse_limit) {
  const DF d;
  const DU du;
  const VU bits = hn::BitCast(du, hn::Mul(amax, hn::Set(d, inverse_limit)));
  const VU exponent = hn::ShiftRight<23>(hn::Add(bits, hn::Set(du, 0x7fffff)));
  return {hn::BitCast(d, hn::ShiftLeft<23>(exponent)),
          hn::BitCast(d, hn::ShiftLeft<23>(hn::Sub(hn::Set(du, 254), exponent)))};
}

// y rounded to nearest even with kMantissa mantissa bits and no exponent below kMinExponent: adding
// and subtracting 1.5 * 2^k rounds at the bit that k chooses.
template <int kMantissa, int kMinExponent>
HWY_INLINE VF RoundMantissa(VF y) {
  const DF d;
  const DU du;
  VU exponent = hn::And(hn::ShiftRight<23>(hn::BitCast(du, y)), hn::Set(du, 0xff));
  exponent = hn::Max(exponent, hn::Set(du, 127 + kMinExponent));
  const VU magic_bits = hn::Or(hn::ShiftLeft<23>(hn::Add(exponent, hn::Set(du, 23 - kMantissa))),
                               hn::Set(du, 0x400000));
  const VF magic = hn::BitCast(d, magic_bits);
  return hn::CopySign(hn::Sub(hn::Add(y, magic), magic), y);
}

// act_quant round trip of kRun elements, e4m3 with limit 448.
template <int64_t kRun>
HWY_INLINE void ActQuantRun(const uint16_t* x, uint16_t* out) {
  const DF d;
  VF amax = hn::Set(d, 1e-4f);
  for (int64_t i = 0; i < kRun; i += kPairLanes) {
    const VPair v = LoadPair(x + i);
    amax = hn::Max(amax, hn::Max(hn::Abs(v.even), hn::Abs(v.odd)));
  }
  const QuantScale s = ScaleOf(hn::MaxOfLanes(d, amax), 1.0f / 448.0f);
  for (int64_t i = 0; i < kRun; i += kPairLanes) {
    VPair v = LoadPair(x + i);
    v.even = hn::Mul(RoundMantissa<3, -6>(hn::Mul(v.even, s.inverse)), s.scale);
    v.odd = hn::Mul(RoundMantissa<3, -6>(hn::Mul(v.odd, s.inverse)), s.scale);
    StorePair(v, out + i);  // exact in bf16
  }
}

// fp4_act_quant round trip of n elements in runs of 32, in place, e2m1 with limit 6.
HWY_INLINE void Fp4ActQuant(uint16_t* x, int64_t n) {
  const DF d;
  for (uint16_t* run = x; run < x + n; run += 32) {
    VF amax = hn::Set(d, 6 * 0x1p-126f);
    for (int64_t i = 0; i < 32; i += kPairLanes) {
      const VPair v = LoadPair(run + i);
      amax = hn::Max(amax, hn::Max(hn::Abs(v.even), hn::Abs(v.odd)));
    }
    const QuantScale s = ScaleOf(hn::MaxOfLanes(d, amax), 1.0f / 6.0f);
    for (int64_t i = 0; i < 32; i += kPairLanes) {
      VPair v = LoadPair(run + i);
      v.even = hn::Mul(RoundMantissa<1, 0>(hn::Mul(v.even, s.inverse)), s.scale);
      v.odd = hn::Mul(RoundMantissa<1, 0>(hn::Mul(v.odd, s.inverse)), s.scale);
      StorePair(v, run + i);
    }
  }
}

// out = x * inverse_rms * weight, rounded; n a multiple of 128; out may be x.
HWY_INLINE void ScaleRow(const uint16_t* x, double inverse_rms, const uint16_t* weight, int64_t n,
                         uint16_t* out) {
  const VD r = hn::Set(DD(), inverse_rms);
  for (int64_t i = 0; i < n; i += kDoublePairLanes) {
    const DoublePair v = LoadDoublePair(x + i), w = LoadDoublePair(weight + i);
    StoreDoublePair({hn::Mul(hn::Mul(v.even, r), w.even), hn::Mul(hn::Mul(v.odd, r), w.odd)},
                    out + i);
  }
}

// RMSNorm of a row, rounded, then act_quant 128 round trip; either output may be null.
HWY_INLINE void RmsNormRow(const uint16_t* x, const uint16_t* weight, int64_t n, float eps,
                           uint16_t* normed, uint16_t* quantized) {
  const double r = InverseRms(SumOfSquares(x, n), n, eps);
  if (normed != nullptr) {
    ScaleRow(x, r, weight, n, normed);
    if (quantized == nullptr) return;
    for (int64_t i = 0; i < n; i += 128) ActQuantRun<128>(normed + i, quantized + i);
  } else {
    for (int64_t i = 0; i < n; i += 128) {
      ScaleRow(x + i, r, weight + i, 128, quantized + i);
      ActQuantRun<128>(quantized + i, quantized + i);
    }
  }
}

// RoPE of 64 elements in place, rounded: `table` has 32 cosines, then 32 sines.
template <bool kInverse = false>
HWY_INLINE void RopeRow(uint16_t* x, const float* HWY_RESTRICT table) {
  for (int64_t i = 0; i < 32; i += kDoubleLanes) {
    const DoublePair v = LoadDoublePair(x + 2 * i);
    const VD c = LoadDouble(table + i);
    const VD s = kInverse ? hn::Neg(LoadDouble(table + 32 + i)) : LoadDouble(table + 32 + i);
    StoreDoublePair(
        {hn::NegMulAdd(v.odd, s, hn::Mul(v.even, c)), hn::MulAdd(v.even, s, hn::Mul(v.odd, c))},
        x + 2 * i);
  }
}

#if HWY_TARGET != HWY_SCALAR
// Lane l becomes v[l] + v[l ^ kStride] in the lower, v[l ^ kStride] - v[l] in the upper of two.
template <int kStride>
HWY_INLINE VD Butterfly(VD v) {
  const DD d;
  const hn::RebindToSigned<DD> di;
  const auto upper = hn::Ne(hn::And(hn::Iota(di, 0), hn::Set(di, kStride)), hn::Zero(di));
  const VD sign = hn::IfThenElse(hn::RebindMask(d, upper), hn::Set(d, -1.0), hn::Set(d, 1.0));
  VD swapped;
  if constexpr (kStride == 1) {
    swapped = hn::Shuffle01(v);
  } else if constexpr (kStride == 2) {
    swapped = hn::SwapAdjacentBlocks(v);
  } else {
    swapped = hn::SwapAdjacentBlocks(hn::ReverseBlocks(d, v));
  }
  return hn::MulAdd(v, sign, swapped);
}
#endif

HWY_INLINE VD ButterflyLanes(VD v) {
#if HWY_TARGET != HWY_SCALAR
  v = Butterfly<1>(v);
#if HWY_MAX_BYTES >= 32
  v = Butterfly<2>(v);
#endif
#if HWY_MAX_BYTES >= 64
  v = Butterfly<4>(v);
#endif
#endif
  return v;
}

// Walsh-Hadamard rotation of 128 elements in place, times 128^-0.5, rounded.
HWY_INLINE void HadamardRow(uint16_t* x) {
  constexpr int64_t kPairs = 128 / kDoublePairLanes;
  DoublePair v[kPairs];
  for (int64_t i = 0; i < kPairs; ++i) {
    const DoublePair in = LoadDoublePair(x + i * kDoublePairLanes);
    v[i] = {ButterflyLanes(hn::Add(in.even, in.odd)), ButterflyLanes(hn::Sub(in.even, in.odd))};
  }
  for (int64_t stride = 1; stride < kPairs; stride *= 2) {
    for (int64_t i = 0; i < kPairs; ++i) {
      if (i & stride) continue;
      const DoublePair a = v[i], b = v[i + stride];
      v[i] = {hn::Add(a.even, b.even), hn::Add(a.odd, b.odd)};
      v[i + stride] = {hn::Sub(a.even, b.even), hn::Sub(a.odd, b.odd)};
    }
  }
  const VD scale = hn::Set(DD(), 0.08838834764831845);
  for (int64_t i = 0; i < kPairs; ++i) {
    StoreDoublePair({hn::Mul(v[i].even, scale), hn::Mul(v[i].odd, scale)},
                    x + i * kDoublePairLanes);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace dsv4
HWY_AFTER_NAMESPACE();

#endif  // include guard, toggled per target
