// SPDX-License-Identifier: Apache-2.0
// The dot products in portable SIMD, once per Highway target, and the choice among all variants.
// bf16 is widened to f32 by a shift (even elements) and a mask (odd ones), which an f32 lane holds
// side by side; weights are widened with lane-wise arithmetic only, so that one text serves every
// target down to scalar.
#include "kernels/cpu/dot.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/dot.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

// Once, before the targets' texts, because AVX3's asks it.
#if defined(__x86_64__) && !defined(DSV4_KERNELS_CPU_DOT_CPUID)
#define DSV4_KERNELS_CPU_DOT_CPUID
#include <cpuid.h>

#include <atomic>

namespace dsv4 {
namespace {

std::atomic<bool> avx512bf16_allowed{true};

// Whether kDotAvx512Bf16 runs where Highway's AVX3 does: the rest of what it is compiled for is
// part of that, the system's support for the registers included.
bool UseAvx512Bf16() {
  static const bool has = [] {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || (ecx >> 1 & 1) == 0) return false;
    return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 5 & 1) != 0;
  }();
  return has && avx512bf16_allowed.load(std::memory_order_relaxed);
}

}  // namespace
}  // namespace dsv4
#endif

HWY_BEFORE_NAMESPACE();
namespace dsv4 {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
using DU = hn::RebindToUnsigned<DF>;
using VF = hn::Vec<DF>;
using VU = hn::Vec<DU>;
constexpr int64_t kLanes = hn::MaxLanes(DF());

// Rows of a tile: as many as leave the accumulators, one column's worth of weights and an
// activation in registers.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr int kTileRows = 5;
#elif HWY_TARGET == HWY_SCALAR
constexpr int kTileRows = 1;
#else
constexpr int kTileRows = 2;
#endif

HWY_INLINE VU LoadPairs(const uint16_t* p) {
#if HWY_TARGET == HWY_SCALAR
  uint32_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return hn::Set(DU(), bits);
#else
  return hn::LoadU(DU(), reinterpret_cast<const uint32_t*>(p));
#endif
}

HWY_INLINE void StorePairs(VU v, uint16_t* p) {
#if HWY_TARGET == HWY_SCALAR
  const uint32_t bits = hn::GetLane(v);
  std::memcpy(p, &bits, sizeof(bits));
#else
  hn::StoreU(v, DU(), reinterpret_cast<uint32_t*>(p));
#endif
}

HWY_INLINE VF Even(VU pairs) { return hn::BitCast(DF(), hn::ShiftLeft<16>(pairs)); }
HWY_INLINE VF Odd(VU pairs) {
  return hn::BitCast(DF(), hn::And(pairs, hn::Set(DU(), 0xffff0000u)));
}

// The lane sums of a, b, c and d, to out[0..4).
HWY_INLINE void SumFour(VF a, VF b, VF c, VF d, float* HWY_RESTRICT out) {
#if HWY_TARGET == HWY_SCALAR
  out[0] = hn::GetLane(a);
  out[1] = hn::GetLane(b);
  out[2] = hn::GetLane(c);
  out[3] = hn::GetLane(d);
#else
  const DF df;
  const hn::RepartitionToWide<DF> dw;
  const VF ab = hn::Add(hn::InterleaveLower(df, a, b), hn::InterleaveUpper(df, a, b));
  const VF cd = hn::Add(hn::InterleaveLower(df, c, d), hn::InterleaveUpper(df, c, d));
  const auto wide_ab = hn::BitCast(dw, ab), wide_cd = hn::BitCast(dw, cd);
  const VF sums = hn::Add(hn::BitCast(df, hn::InterleaveLower(dw, wide_ab, wide_cd)),
                          hn::BitCast(df, hn::InterleaveUpper(dw, wide_ab, wide_cd)));
  alignas(64) float blocks[kLanes];
  hn::Store(sums, df, blocks);
  const hn::CappedTag<float, 4> d4;
  auto total = hn::Load(d4, blocks);
  for (int64_t i = 4; i < kLanes; i += 4) total = hn::Add(total, hn::Load(d4, blocks + i));
  hn::StoreU(total, d4, out);
#endif
}

// Columns from n on repeat column n - 1 and are not stored.
template <int kRows>
HWY_INLINE void TileBf16(const ActRows& a, int64_t m, const uint16_t* w, int64_t w_stride, int n,
                         int64_t k, float* HWY_RESTRICT out, int64_t ld) {
  const DF df;
  const uint16_t* rows[kRows];
  const uint16_t* cols[4];
  for (int i = 0; i < kRows; ++i) rows[i] = a.Row(m + i);
  for (int j = 0; j < 4; ++j) cols[j] = w + (j < n ? j : n - 1) * w_stride;
  VF acc[kRows][4];
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < 4; ++j) acc[i][j] = hn::Zero(df);
  }
  for (int64_t p = 0; p < k; p += 2 * kLanes) {
    const VU w0 = LoadPairs(cols[0] + p), w1 = LoadPairs(cols[1] + p);
    const VU w2 = LoadPairs(cols[2] + p), w3 = LoadPairs(cols[3] + p);
    const VF even0 = Even(w0), even1 = Even(w1), even2 = Even(w2), even3 = Even(w3);
    HWY_UNROLL(8)
    for (int i = 0; i < kRows; ++i) {
      const VF v = Even(LoadPairs(rows[i] + p));
      acc[i][0] = hn::MulAdd(v, even0, acc[i][0]);
      acc[i][1] = hn::MulAdd(v, even1, acc[i][1]);
      acc[i][2] = hn::MulAdd(v, even2, acc[i][2]);
      acc[i][3] = hn::MulAdd(v, even3, acc[i][3]);
    }
    const VF odd0 = Odd(w0), odd1 = Odd(w1), odd2 = Odd(w2), odd3 = Odd(w3);
    HWY_UNROLL(8)
    for (int i = 0; i < kRows; ++i) {
      const VF v = Odd(LoadPairs(rows[i] + p));
      acc[i][0] = hn::MulAdd(v, odd0, acc[i][0]);
      acc[i][1] = hn::MulAdd(v, odd1, acc[i][1]);
      acc[i][2] = hn::MulAdd(v, odd2, acc[i][2]);
      acc[i][3] = hn::MulAdd(v, odd3, acc[i][3]);
    }
  }
  for (int i = 0; i < kRows; ++i) {
    float sums[4];
    SumFour(acc[i][0], acc[i][1], acc[i][2], acc[i][3], sums);
    std::memcpy(out + (m + i) * ld, sums, static_cast<size_t>(n) * sizeof(float));
  }
}

void DotBf16(const ActRows& a, int64_t m, const uint16_t* w, int64_t w_stride, int64_t n, int64_t k,
             float* out, int64_t ld) {
  for (int64_t j = 0; j < n; j += 4) {
    const int cols = static_cast<int>(n - j < 4 ? n - j : 4);
    const uint16_t* wj = w + j * w_stride;
    int64_t i = 0;
    for (; i + kTileRows <= m; i += kTileRows) {
      TileBf16<kTileRows>(a, i, wj, w_stride, cols, k, out + j, ld);
    }
    for (; i < m; ++i) TileBf16<1>(a, i, wj, w_stride, cols, k, out + j, ld);
  }
}

// The value of a small float's magnitude, whose bits were shifted so that its exponent begins at
// bit 23: a normal one by its bits and the difference of the biases, a subnormal one as the normal
// of the same mantissa less the leading one. Needs no subnormal f32.
HWY_INLINE VF FromMagnitude(VU shifted, uint32_t bias) {
  const DF df;
  const DU du;
  const auto subnormal = hn::Lt(shifted, hn::Set(du, 1u << 23));
  const VF normal = hn::BitCast(df, hn::Add(shifted, hn::Set(du, bias << 23)));
  const VF one_up = hn::BitCast(df, hn::Add(shifted, hn::Set(du, (bias + 1) << 23)));
  const VF leading = hn::BitCast(df, hn::Set(du, (bias + 1) << 23));
  return hn::IfThenElse(hn::RebindMask(df, subnormal), hn::Sub(one_up, leading), normal);
}

HWY_INLINE float FoldFactor(const uint8_t* scale, int64_t i) {
  const uint32_t bits = scale == nullptr ? 127u << 23 : uint32_t{scale[i]} << 23;
  float factor;
  std::memcpy(&factor, &bits, sizeof(factor));
  return factor;
}

void WidenFp8(const uint8_t* w, const uint8_t* scale, int64_t n, int64_t k, uint16_t* out) {
  const DF df;
  const DU du;
  const hn::Rebind<uint8_t, DF> d8;
  const hn::Rebind<uint16_t, DF> d16;
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t block = 0; block < k / 128; ++block) {
      const VF factor = hn::Set(df, FoldFactor(scale, block));
      const uint8_t* from = w + j * k + block * 128;
      uint16_t* to = out + j * k + block * 128;
      for (int64_t i = 0; i < 128; i += kLanes) {
        const VU v = hn::PromoteTo(du, hn::LoadU(d8, from + i));
        const VU magnitude = hn::And(v, hn::Set(du, 0x7fu));
        const VU sign = hn::ShiftLeft<8>(hn::And(v, hn::Set(du, 0x80u)));
        const VF value = hn::Mul(FromMagnitude(hn::ShiftLeft<20>(magnitude), 120), factor);
        const VU nan = hn::VecFromMask(du, hn::Eq(magnitude, hn::Set(du, 0x7fu)));
        const VU bits =
            hn::Or(hn::ShiftRight<16>(hn::BitCast(du, value)), hn::And(nan, hn::Set(du, 0x7fc0u)));
        hn::StoreU(hn::TruncateTo(d16, hn::Or(bits, sign)), d16, to + i);
      }
    }
  }
}

// bf16 bits, in the upper half of each lane, of the e2m1 value in its low four bits.
HWY_INLINE VU WidenNibble(VU nibble, VF factor) {
  const DU du;
  const VU magnitude = hn::And(nibble, hn::Set(du, 7u));
  const VU sign = hn::ShiftLeft<28>(hn::And(nibble, hn::Set(du, 8u)));
  const VF value = hn::Mul(FromMagnitude(hn::ShiftLeft<22>(magnitude), 126), factor);
  return hn::Or(hn::BitCast(du, value), sign);
}

void WidenFp4(const uint8_t* w, const uint8_t* scale, int64_t n, int64_t k, uint16_t* out) {
  const DF df;
  const DU du;
  const hn::Rebind<uint8_t, DF> d8;
  const int64_t runs = k / 32;
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t run = 0; run < runs; ++run) {
      const VF factor = hn::Set(df, FoldFactor(scale, j * runs + run));
      const uint8_t* from = w + j * (k / 2) + run * 16;
      uint16_t* to = out + j * k + run * 32;
      for (int64_t i = 0; i < 16; i += kLanes) {
        const VU v = hn::PromoteTo(du, hn::LoadU(d8, from + i));
        const VU even = WidenNibble(v, factor), odd = WidenNibble(hn::ShiftRight<4>(v), factor);
        StorePairs(hn::Or(hn::ShiftRight<16>(even), odd), to + 2 * i);
      }
    }
  }
}

}  // namespace

const DotKernels* TargetDotKernels() {
  static constexpr DotKernels kKernels = {
      HWY_STR(HWY_NAMESPACE), &DotBf16, &WidenFp8, &WidenFp4, nullptr, nullptr};
#if HWY_TARGET == HWY_AVX3
  if (UseAvx512Bf16()) return &kDotAvx512Bf16;
#endif
  return &kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace dsv4
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsv4 {

HWY_EXPORT(TargetDotKernels);

const DotKernels& ActiveDotKernels() { return *HWY_DYNAMIC_DISPATCH(TargetDotKernels)(); }

void AllowAvx512Bf16([[maybe_unused]] bool allowed) {
#if defined(__x86_64__)
  avx512bf16_allowed.store(allowed, std::memory_order_relaxed);
#endif
}

}  // namespace dsv4
#endif  // HWY_ONCE
