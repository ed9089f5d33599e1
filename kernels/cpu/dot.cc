// SPDX-License-Identifier: Apache-2.0
// The dot products in portable SIMD, once per Highway target, and the choice among all variants.
// bf16 is widened to f32 by a shift (even elements) and a mask (odd ones), which an f32 lane holds
// side by side; weights are widened in 16-bit lanes.
#include "kernels/cpu/dot.h"

#include <bit>
#include <cstring>

#include "lib/tensor/quant_format.h"

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

HWY_INLINE VF Even(VU pairs) { return hn::BitCast(DF(), hn::ShiftLeft<16>(pairs)); }
HWY_INLINE VF Odd(VU pairs) {
  return hn::BitCast(DF(), hn::And(pairs, hn::Set(DU(), 0xffff0000u)));
}

#if HWY_TARGET != HWY_SCALAR
// The sum of v's 128-bit blocks.
template <class D>
HWY_INLINE hn::Vec<hn::CappedTag<float, 4>> SumBlocks(D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) > 4) {
    const hn::Half<D> half;
    return SumBlocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else {
    (void)d;
    return v;
  }
}
#endif

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
  hn::StoreU(SumBlocks(df, sums), hn::CappedTag<float, 4>(), out);
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
    float* to = out + (m + i) * ld;
    if (n == 4) {
      SumFour(acc[i][0], acc[i][1], acc[i][2], acc[i][3], to);
    } else {
      float sums[4];
      SumFour(acc[i][0], acc[i][1], acc[i][2], acc[i][3], sums);
      std::memcpy(to, sums, static_cast<size_t>(n) * sizeof(float));
    }
  }
}

#if HWY_TARGET == HWY_AVX3
constexpr int kWideTileRows = 2;
#else
constexpr int kWideTileRows = 1;
#endif

using DHalf = hn::Half<DF>;
using DWide = hn::Rebind<double, DHalf>;
using VWide = hn::Vec<DWide>;

// v's lanes, added in pairs before the conversion, which costs more than an addition.
HWY_INLINE VWide Widened(VF v) {
#if HWY_TARGET == HWY_SCALAR
  return hn::PromoteTo(DWide(), v);
#else
  const DHalf half;
  return hn::PromoteTo(DWide(), hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
#endif
}

// As TileBf16, in chains of four terms.
template <int kRows>
HWY_INLINE void TileBf16Wide(const ActRows& a, int64_t m, const uint16_t* w, int64_t w_stride,
                             int n, int64_t k, float* HWY_RESTRICT out, int64_t ld) {
  const uint16_t* rows[kRows];
  const uint16_t* cols[4];
  for (int i = 0; i < kRows; ++i) rows[i] = a.Row(m + i);
  for (int j = 0; j < 4; ++j) cols[j] = w + (j < n ? j : n - 1) * w_stride;
  VWide acc[kRows][4];
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < 4; ++j) acc[i][j] = hn::Zero(DWide());
  }
  for (int64_t p = 0; p < k; p += 4 * kLanes) {
    HWY_UNROLL(4)
    for (int j = 0; j < 4; ++j) {
      const VU w0 = LoadPairs(cols[j] + p), w1 = LoadPairs(cols[j] + p + 2 * kLanes);
      HWY_UNROLL(8)
      for (int i = 0; i < kRows; ++i) {
        const VU v0 = LoadPairs(rows[i] + p), v1 = LoadPairs(rows[i] + p + 2 * kLanes);
        VF sum = hn::Mul(Even(v0), Even(w0));
        sum = hn::MulAdd(Odd(v0), Odd(w0), sum);
        sum = hn::MulAdd(Even(v1), Even(w1), sum);
        sum = hn::MulAdd(Odd(v1), Odd(w1), sum);
        acc[i][j] = hn::Add(acc[i][j], Widened(sum));
      }
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < n; ++j) {
      out[(m + i) * ld + j] = static_cast<float>(hn::GetLane(hn::SumOfLanes(DWide(), acc[i][j])));
    }
  }
}

// Rows [m, m + count), count <= kRows.
template <bool kWide, int kRows>
HWY_INLINE void TileUpTo(int64_t count, const ActRows& a, int64_t m, const uint16_t* w,
                         int64_t w_stride, int n, int64_t k, float* HWY_RESTRICT out, int64_t ld) {
  if (count == kRows) {
    if constexpr (kWide) {
      TileBf16Wide<kRows>(a, m, w, w_stride, n, k, out, ld);
    } else {
      TileBf16<kRows>(a, m, w, w_stride, n, k, out, ld);
    }
  } else if constexpr (kRows > 1) {
    TileUpTo<kWide, kRows - 1>(count, a, m, w, w_stride, n, k, out, ld);
  }
}

template <bool kWide>
void DotBf16(const ActRows& a, int64_t m, const uint16_t* w, int64_t w_stride, int64_t n, int64_t k,
             float* out, int64_t ld) {
  for (int64_t j = 0; j < n; j += 4) {
    const int cols = static_cast<int>(n - j < 4 ? n - j : 4);
    constexpr int kRows = kWide ? kWideTileRows : kTileRows;
    for (int64_t i = 0; i < m; i += kRows) {
      TileUpTo<kWide, kRows>(m - i < kRows ? m - i : kRows, a, i, w + j * w_stride, w_stride, cols,
                             k, out + j, ld);
    }
  }
}

#if HWY_TARGET == HWY_SCALAR

uint16_t ScaledBits(float value, const uint8_t* scale, int64_t i) {
  const float scaled = value * (scale == nullptr ? 1.0f : E8M0ToFloat(scale[i]));
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(scaled) >> 16);
}

void WidenFp8(const uint8_t* w, const uint8_t* scale, int64_t n, int64_t k, uint16_t* out) {
  for (int64_t i = 0; i < n * k; ++i) out[i] = ScaledBits(E4M3ToFloat(w[i]), scale, i % k / 128);
}

void WidenFp4(const uint8_t* w, const uint8_t* scale, int64_t n, int64_t k, uint16_t* out) {
  for (int64_t i = 0; i < n * k; ++i) {
    out[i] = ScaledBits(E2M1ToFloat(w[i / 2] >> (i % 2 * 4)), scale, i / 32);
  }
}

#else

using D8 = hn::Repartition<uint8_t, DF>;
using D16 = hn::Repartition<uint16_t, DF>;
using V16 = hn::Vec<D16>;
constexpr int64_t kLanes16 = 2 * kLanes;

HWY_INLINE uint16_t FoldBits(const uint8_t* scale, int64_t i) {
  return static_cast<uint16_t>(scale == nullptr ? 0 : (scale[i] - 127) * 128);
}

// Words of a table of eight at indices, for each 16-bit lane; 0 for an index of 8 to 127.
HWY_INLINE V16 LookupWords(V16 table, V16 index) {
  // Two byte indices per word. Those up to 15 keep their low bits and stay below 0x80, above which
  // the look-up gives 0.
  const auto bytes = hn::BitCast(D8(), hn::Mul(index, hn::Set(D16(), 0x0202)));
  const auto offset = hn::BitCast(D8(), hn::Set(D16(), 0x7170));
  return hn::BitCast(
      D16(), hn::TableLookupBytesOr0(hn::BitCast(D8(), table), hn::SaturatedAdd(bytes, offset)));
}

void WidenFp8(const uint8_t* w, const uint8_t* scale, int64_t n, int64_t k, uint16_t* out) {
  const D16 d16;
  const hn::Rebind<uint8_t, D16> d8;
  // bf16 of 0 .. 7 times 2^-9.
  constexpr uint16_t kSubnormal[8] = {0, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60};
  for (int64_t block = 0; block < k / 128; ++block) {
    const uint16_t fold = FoldBits(scale, block);
    // A normal number is its bits moved to bf16's places, and this for the biases' difference.
    const auto base = static_cast<uint16_t>(0x3c00 + fold);
    // What is still missing where that was no normal number.
    alignas(16) uint16_t missing[8];
    for (int i = 0; i < 8; ++i) {
      const int bits = i == 0 ? 0 : kSubnormal[i] + fold;
      missing[i] = static_cast<uint16_t>(bits - base - i * 16);
    }
    const V16 table = hn::LoadDup128(d16, missing), bias = hn::Set(d16, base);
    for (int64_t j = 0; j < n; ++j) {
      const uint8_t* from = w + j * k + block * 128;
      uint16_t* to = out + j * k + block * 128;
      for (int64_t i = 0; i < 128; i += kLanes16) {
        const V16 v = hn::PromoteTo(d16, hn::LoadU(d8, from + i));
        const V16 magnitude = hn::And(v, hn::Set(d16, 0x7f));
        const V16 sign = hn::And(hn::ShiftLeft<8>(v), hn::Set(d16, 0x8000));
        const V16 value =
            hn::Add(hn::Add(hn::ShiftLeft<4>(magnitude), bias), LookupWords(table, magnitude));
        const V16 nan = hn::And(hn::VecFromMask(d16, hn::Eq(magnitude, hn::Set(d16, 0x7f))),
                                hn::Set(d16, 0x7fc0));
        hn::StoreU(hn::Or(hn::Or(value, nan), sign), d16, to + i);
      }
    }
  }
}

void WidenFp4(const uint8_t* w, const uint8_t* scale, int64_t n, int64_t k, uint16_t* out) {
  const D16 d16;
  const DU du;
  const hn::Rebind<uint8_t, DU> d8;
  alignas(16) static constexpr uint16_t kE2M1[8] = {0,      0x3f00, 0x3f80, 0x3fc0,
                                                    0x4000, 0x4040, 0x4080, 0x40c0};
  alignas(16) static constexpr uint16_t kNonzero[8] = {0,      0xffff, 0xffff, 0xffff,
                                                       0xffff, 0xffff, 0xffff, 0xffff};
  const V16 unscaled = hn::LoadDup128(d16, kE2M1), nonzero = hn::LoadDup128(d16, kNonzero);
  const int64_t runs = n * (k / 32);  // rows follow each other without a gap
  for (int64_t run = 0; run < runs; ++run) {
    const V16 table = hn::Add(unscaled, hn::And(nonzero, hn::Set(d16, FoldBits(scale, run))));
    for (int64_t i = 0; i < 16; i += kLanes) {
      // Of each byte the low four bits in the even word, the high four in the odd one.
      const VU v = hn::PromoteTo(du, hn::LoadU(d8, w + run * 16 + i));
      const V16 codes = hn::BitCast(d16, hn::Or(v, hn::ShiftLeft<12>(v)));
      const V16 sign = hn::And(hn::ShiftLeft<12>(codes), hn::Set(d16, 0x8000));
      const V16 value = LookupWords(table, hn::And(codes, hn::Set(d16, 7)));
      hn::StoreU(hn::Or(value, sign), d16, out + run * 32 + 2 * i);
    }
  }
}

#endif  // HWY_TARGET

}  // namespace

const DotKernels* TargetDotKernels() {
  static constexpr DotKernels kKernels = {.name = HWY_STR(HWY_NAMESPACE),
                                          .bf16 = &DotBf16<false>,
                                          .bf16_wide = &DotBf16<true>,
                                          .widen_fp8 = &WidenFp8,
                                          .widen_fp4 = &WidenFp4,
                                          .direct_fp8 = nullptr,
                                          .direct_fp8_wide = nullptr,
                                          .direct_fp4 = nullptr};
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
