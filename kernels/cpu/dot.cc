// SPDX-License-Identifier: Apache-2.0
// The dot products in portable SIMD, once per Highway target, and the choice among all variants.
// bf16 is converted to f32 by a shift (even elements) and a mask (odd ones), which an f32 lane
// holds side by side; weights are unpacked in 16-bit lanes.
#include "kernels/cpu/dot.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

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

std::atomic<DotExtension> allowed_extensions{DotExtension::kAmx};

// Leaf 7 of cpuid, subleaves 0 and 1.
struct CpuFeatures {
  unsigned eax[2] = {}, ebx[2] = {}, ecx[2] = {}, edx[2] = {};
  CpuFeatures() {
    for (unsigned i = 0; i < 2; ++i) __get_cpuid_count(7, i, &eax[i], &ebx[i], &ecx[i], &edx[i]);
  }
};

// Whether kDotAvx512Bf16 runs on a processor that has Highway's AVX3. AVX3 implies all other
// features that it is compiled for, and the system's support for the registers.
bool HasAvx512Bf16() {
  const CpuFeatures features;
  return (features.ecx[0] >> 1 & 1) != 0 && (features.eax[1] >> 5 & 1) != 0;
}

// Whether the processor has AMX with bf16, and the system gives this process its registers.
bool HasAmx() {
  const CpuFeatures features;
  return (features.edx[0] >> 22 & 1) != 0 && (features.edx[0] >> 24 & 1) != 0 &&
         AmxDotKernels() != nullptr;
}

// What to take where Highway's AVX3 runs; null: Highway's.
const DotKernels* Extension() {
  static const DotExtension best = !HasAvx512Bf16() ? DotExtension::kNone
                                   : HasAmx()       ? DotExtension::kAmx
                                                    : DotExtension::kAvx512Bf16;
  switch (std::min(best, allowed_extensions.load(std::memory_order_relaxed))) {
    case DotExtension::kNone:
      return nullptr;
    case DotExtension::kAvx512Bf16:
      return &kDotAvx512Bf16;
    case DotExtension::kAmx:
      return AmxDotKernels();
  }
  return nullptr;
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

// Rows of a tile: the most for which the accumulators, one column of weights and an activation fit
// in registers.
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

// Columns from n on repeat column n - 1 and are not stored. kAhead: asks for the next tile's.
template <int kRows, bool kAhead>
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
    if constexpr (kAhead) {
      if (p % 32 == 0) {
        for (const uint16_t* col : cols) __builtin_prefetch(col + 4 * w_stride + p);
      }
    }
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

// Calls f<kRows'>() for `count` <= kRows rows.
template <int kRows, class F>
HWY_INLINE void WithRows(int64_t count, const F& f) {
  if (count == kRows) {
    f.template operator()<kRows>();
  } else if constexpr (kRows > 1) {
    WithRows<kRows - 1>(count, f);
  }
}

void DotBf16(const ActRows& a, int64_t m, const uint16_t* w, int64_t w_stride, int64_t n, int64_t k,
             float* out, int64_t ld) {
  for (int64_t j = 0; j < n; j += 4) {
    const int cols = static_cast<int>(n - j < 4 ? n - j : 4);
    for (int64_t i = 0; i < m; i += kTileRows) {
      WithRows<kTileRows>(m - i < kTileRows ? m - i : kTileRows, [&]<int kRows>() HWY_ATTR {
        const uint16_t* const from = w + j * w_stride;
        // Weights of few rows come from memory.
        if (i == 0 && m <= kDirectRows) {
          TileBf16<kRows, true>(a, i, from, w_stride, cols, k, out + j, ld);
        } else {
          TileBf16<kRows, false>(a, i, from, w_stride, cols, k, out + j, ld);
        }
      });
    }
  }
}

#if HWY_TARGET == HWY_SCALAR

uint16_t ScaledBits(float value, const uint8_t* scale, int64_t i) {
  const float scaled = value * (scale == nullptr ? 1.0f : E8M0ToFloat(scale[i]));
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(scaled) >> 16);
}

void UnpackFp8(const uint8_t* w, const uint8_t* scale, int64_t n, int64_t k, uint16_t* out) {
  for (int64_t i = 0; i < n * k; ++i) out[i] = ScaledBits(E4M3ToFloat(w[i]), scale, i % k / 128);
}

void UnpackFp4(const uint8_t* w, const uint8_t* scale, int64_t n, int64_t k, uint16_t* out) {
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
  // Two byte indices per word.
  const auto bytes = hn::BitCast(D8(), hn::Mul(index, hn::Set(D16(), 0x0202)));
#if HWY_ARCH_X86 && HWY_TARGET != HWY_EMU128
  // The look-up takes the low four bits of an index, and gives 0 from 0x80 on: indices up to 15
  // stay below.
  const auto offset = hn::BitCast(D8(), hn::Set(D16(), 0x7170));
#else
  // The look-up gives 0 from 16 on.
  const auto offset = hn::BitCast(D8(), hn::Set(D16(), 0x0100));
#endif
  return hn::BitCast(
      D16(), hn::TableLookupBytesOr0(hn::BitCast(D8(), table), hn::SaturatedAdd(bytes, offset)));
}

void UnpackFp8(const uint8_t* w, const uint8_t* scale, int64_t n, int64_t k, uint16_t* out) {
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

void UnpackFp4(const uint8_t* w, const uint8_t* scale, int64_t n, int64_t k, uint16_t* out) {
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
      // The low four bits of each byte in the even word, the high four in the odd one.
      const VU v = hn::PromoteTo(du, hn::LoadU(d8, w + run * 16 + i));
      const V16 codes = hn::BitCast(d16, hn::Or(v, hn::ShiftLeft<12>(v)));
      const V16 sign = hn::And(hn::ShiftLeft<12>(codes), hn::Set(d16, 0x8000));
      const V16 value = LookupWords(table, hn::And(codes, hn::Set(d16, 7)));
      hn::StoreU(hn::Or(value, sign), d16, out + run * 32 + 2 * i);
    }
  }
}

// ---- Weights straight from memory. They become f32 by way of f16, whose exponents reach e4m3's
// subnormal numbers: an e4m3 code's bits at the places of f16 mean its value times 2^-8, and the
// bits of an e2m1 number lie in the upper byte of f16. The even elements of a stretch of K lie in
// one vector and the odd ones in another, as where weights are bf16, so that sums are the same.

using DI16 = hn::RebindToSigned<D16>;
using DHalf16 = hn::Half<D16>;
using DF16 = hn::Rebind<hwy::float16_t, DF>;
constexpr int64_t kStretch = 4 * kLanes;  // elements of K per step

// The lower and the upper half of a vector of f16 bits.
HWY_INLINE void FromHalves(V16 bits, VF& lower, VF& upper) {
  lower = hn::PromoteTo(DF(), hn::BitCast(DF16(), hn::LowerHalf(DHalf16(), bits)));
  upper = hn::PromoteTo(DF(), hn::BitCast(DF16(), hn::UpperHalf(DHalf16(), bits)));
}

// A stretch of K of one weight row or activation row.
struct Stretch {
  VF even[2], odd[2];
};

HWY_INLINE VF AddProducts(const Stretch& a, const Stretch& b, VF sum) {
  sum = hn::MulAdd(a.even[0], b.even[0], sum);
  sum = hn::MulAdd(a.odd[0], b.odd[0], sum);
  sum = hn::MulAdd(a.even[1], b.even[1], sum);
  return hn::MulAdd(a.odd[1], b.odd[1], sum);
}

HWY_INLINE Stretch LoadActivations(const uint16_t* p) {
  const VU first = LoadPairs(p), second = LoadPairs(p + 2 * kLanes);
  return {{Even(first), Even(second)}, {Odd(first), Odd(second)}};
}

HWY_INLINE Stretch Scaled(const Stretch& v, VF first, VF second) {
  return {{hn::Mul(v.even[0], first), hn::Mul(v.even[1], second)},
          {hn::Mul(v.odd[0], first), hn::Mul(v.odd[1], second)}};
}

#if HWY_TARGET == HWY_AVX2

// e4m3 codes, times 2^kE4M3Exponent: their bits at the places of f32, where subnormal numbers are
// subnormal, too. A NaN is taken for a number.
constexpr int kE4M3Exponent = -120;
// Activations are multiplied by 2^kActExponent. Under every scale that folds, products of those
// that act_quant leaves, from 2^-31 on, are exact, and activations below 2^20 stay finite.
constexpr int kActExponent = 59;

HWY_INLINE Stretch FromE4M3(V16 codes) {
  // Lane l: elements 2 l, 2 l + 1, 16 + 2 l and 17 + 2 l.
  const __m256i order = _mm256_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15, 0, 1,
                                         8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15);
  const __m256i lanes =
      _mm256_shuffle_epi8(_mm256_permute4x64_epi64(codes.raw, _MM_SHUFFLE(3, 1, 2, 0)), order);
  // Widened with their signs and shifted by 4.
  const __m256i even = _mm256_maddubs_epi16(_mm256_set1_epi16(0x0010), lanes);
  const __m256i odd = _mm256_maddubs_epi16(_mm256_set1_epi16(0x1000), lanes);
  const __m256i mask = _mm256_set1_epi32(static_cast<int>(0x87f00000u));
  const auto number = [&](__m256i bits) HWY_ATTR {
    return VF{_mm256_castsi256_ps(_mm256_and_si256(bits, mask))};
  };
  return {{number(_mm256_slli_epi32(even, 16)), number(even)},
          {number(_mm256_slli_epi32(odd, 16)), number(odd)}};
}

#else

constexpr int kE4M3Exponent = -8, kActExponent = 8;

// e4m3 codes, times 2^kE4M3Exponent. A NaN is taken for a number.
HWY_INLINE Stretch FromE4M3(V16 codes) {
  const DI16 di;
  // The sign twice, then the magnitude, then what is not the code's.
  const auto mask = hn::Set(di, static_cast<int16_t>(0xbf80));
  const auto even = hn::And(hn::ShiftRight<1>(hn::BitCast(di, hn::ShiftLeft<8>(codes))), mask);
  const auto odd = hn::And(hn::ShiftRight<1>(hn::BitCast(di, codes)), mask);
  Stretch v;
  FromHalves(hn::BitCast(D16(), even), v.even[0], v.even[1]);
  FromHalves(hn::BitCast(D16(), odd), v.odd[0], v.odd[1]);
  return v;
}

#endif

// What FP4 tiles have for each run of 32.
#if HWY_TARGET == HWY_AVX2
using RunFactor = uint8_t;  // its scale as stored
#else
using RunFactor = float;
#endif

#if HWY_TARGET == HWY_AVX3

// e2m1 codes of a stretch times the factors of their runs: a look-up by the lower four bits of f32
// lanes.
HWY_INLINE Stretch FromE2M1(const uint8_t* codes, const RunFactor* factors) {
  alignas(64) static constexpr float kValues[16] = {
      0.f, .5f, 1.f, 1.5f, 2.f, 3.f, 4.f, 6.f, -0.f, -.5f, -1.f, -1.5f, -2.f, -3.f, -4.f, -6.f};
  Stretch v;
  for (int i = 0; i < 2; ++i) {
    const VF table = hn::Mul(hn::Load(DF(), kValues), hn::Set(DF(), factors[i]));
    const VU pairs = hn::PromoteTo(DU(), hn::LoadU(hn::Rebind<uint8_t, DU>(), codes + i * kLanes));
    v.even[i] = VF{_mm512_permutexvar_ps(pairs.raw, table.raw)};
    v.odd[i] = VF{_mm512_permutexvar_ps(hn::ShiftRight<4>(pairs).raw, table.raw)};
  }
  return v;
}

#elif HWY_TARGET == HWY_AVX2

// For every scale within kMaxFold, the lower and the upper bytes of the bf16 numbers of the codes.
struct E2M1Bytes {
  uint8_t lower[16], upper[16];
};
alignas(32) constexpr std::array<E2M1Bytes, 2 * kMaxFold + 1> kE2M1Bytes = [] {
  std::array<E2M1Bytes, 2 * kMaxFold + 1> tables{};
  for (int fold = -kMaxFold; fold <= kMaxFold; ++fold) {
    for (int code = 0; code < 16; ++code) {
      constexpr int kBits[8] = {0, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0};
      const int magnitude = code % 8 == 0 ? 0 : kBits[code % 8] + fold * 128;
      E2M1Bytes& table = tables[static_cast<size_t>(fold + kMaxFold)];
      table.lower[code] = static_cast<uint8_t>(magnitude);
      table.upper[code] = static_cast<uint8_t>(magnitude / 256 + code / 8 * 128);
    }
  }
  return tables;
}();

HWY_INLINE __m256i LoadTwice(const uint8_t* p) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

// e2m1 codes of a stretch, which is a run, times its scale.
HWY_INLINE Stretch FromE2M1(const uint8_t* codes, const RunFactor* scale) {
  const E2M1Bytes& table = kE2M1Bytes[*scale - (127 - kMaxFold)];
  // Bytes l and 8 + l for each lane l, twice: for the even elements and for the odd ones.
  const __m256i order = _mm256_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 0, 8, 1, 9, 2, 10, 3, 11, 4, 12,
                                         5, 13, 6, 14, 7, 15, 4, 12, 5, 13, 6, 14, 7, 15);
  const __m256i bytes = _mm256_shuffle_epi8(LoadTwice(codes), order);
  const __m256i index = _mm256_and_si256(_mm256_srlv_epi64(bytes, _mm256_setr_epi64x(0, 4, 0, 4)),
                                         _mm256_set1_epi8(15));
  const __m256i lower = _mm256_shuffle_epi8(LoadTwice(table.lower), index);
  const __m256i upper = _mm256_shuffle_epi8(LoadTwice(table.upper), index);
  const VU even{_mm256_unpacklo_epi8(lower, upper)}, odd{_mm256_unpackhi_epi8(lower, upper)};
  return {{Even(even), Odd(even)}, {Even(odd), Odd(odd)}};
}

#else

// e2m1 codes of a stretch times the factors of their runs.
HWY_INLINE Stretch FromE2M1(const uint8_t* codes, const RunFactor* factors) {
  const V16 bytes = hn::PromoteTo(D16(), hn::LoadU(hn::Rebind<uint8_t, D16>(), codes));
  alignas(16) static constexpr uint8_t kUpper[16] = {0x00, 0x38, 0x3c, 0x3e, 0x40, 0x42,
                                                     0x44, 0x46, 0x80, 0xb8, 0xbc, 0xbe,
                                                     0xc0, 0xc2, 0xc4, 0xc6};
  const auto table = hn::LoadDup128(D8(), kUpper);
  const V16 mask = hn::Set(D16(), 0x0f00);
  // The lower byte of each word looks up 0, which is 0.
  const auto even = hn::BitCast(D8(), hn::And(hn::ShiftLeft<8>(bytes), mask));
  const auto odd = hn::BitCast(D8(), hn::And(hn::ShiftLeft<4>(bytes), mask));
  Stretch v;
  FromHalves(hn::BitCast(D16(), hn::TableLookupBytes(table, even)), v.even[0], v.even[1]);
  FromHalves(hn::BitCast(D16(), hn::TableLookupBytes(table, odd)), v.odd[0], v.odd[1]);
  return Scaled(v, hn::Set(DF(), factors[0]), hn::Set(DF(), factors[2 * kLanes / 32]));
}

#endif

HWY_INLINE float PowerOfTwo(int exponent) {
  return std::bit_cast<float>(static_cast<uint32_t>(127 + exponent) << 23);
}

constexpr int kDirectTileRows = HWY_TARGET == HWY_AVX2 ? 2 : 4;

// Columns from n on repeat column n - 1 and are not stored.
template <int kRows, int kCols>
HWY_INLINE void StoreTile(const VF (&acc)[kRows][kCols], int n, float* HWY_RESTRICT out,
                          int64_t ld) {
  static_assert(kCols % 4 == 0);
  for (int i = 0; i < kRows; ++i) {
    float sums[kCols];
    for (int j = 0; j < kCols; j += 4) {
      SumFour(acc[i][j], acc[i][j + 1], acc[i][j + 2], acc[i][j + 3], sums + j);
    }
    std::memcpy(out + i * ld, sums, static_cast<size_t>(n) * sizeof(float));
  }
}

template <int kRows, int kCols>
HWY_INLINE void TileFp8(const ActRows& a, int64_t m, const uint8_t* w, const uint8_t* scale, int n,
                        int64_t k, float* HWY_RESTRICT out, int64_t ld) {
  const DF df;
  const D8 d8;
  const uint16_t* rows[kRows];
  const uint8_t* cols[kCols];
  for (int i = 0; i < kRows; ++i) rows[i] = a.Row(m + i);
  for (int j = 0; j < kCols; ++j) cols[j] = w + (j < n ? j : n - 1) * k;
  VF acc[kRows][kCols];
  for (auto& row : acc) {
    for (VF& sum : row) sum = hn::Zero(df);
  }
  auto largest = hn::Zero(d8);  // magnitude's code
  for (int64_t block = 0; block < k; block += 128) {
    // The scale goes to the activations, which several weights share.
    const int fold = scale == nullptr ? 0 : scale[block / 128] - 127;
    const VF factor = hn::Set(df, PowerOfTwo(fold + kActExponent));
    // The next tile's, which lies beyond the page that the processor reads ahead in.
    for (const uint8_t* col : cols) {
      __builtin_prefetch(col + kCols * k + block);
      __builtin_prefetch(col + kCols * k + block + 64);
    }
    for (int64_t p = block; p < block + 128; p += kStretch) {
      Stretch x[kRows];
      HWY_UNROLL(4)
      for (int i = 0; i < kRows; ++i) {
        x[i] = Scaled(LoadActivations(rows[i] + p), factor, factor);
      }
      HWY_UNROLL(8)
      for (int j = 0; j < kCols; ++j) {
        const auto codes = hn::LoadU(d8, cols[j] + p);
        largest = hn::Max(largest, hn::And(codes, hn::Set(d8, 0x7f)));
        const Stretch v = FromE4M3(hn::BitCast(D16(), codes));
        HWY_UNROLL(4)
        for (int i = 0; i < kRows; ++i) acc[i][j] = AddProducts(x[i], v, acc[i][j]);
      }
    }
  }
  if constexpr (kActExponent + kE4M3Exponent != 0) {
    const VF unit = hn::Set(df, PowerOfTwo(-kActExponent - kE4M3Exponent));
    for (auto& row : acc) {
      for (VF& sum : row) sum = hn::Mul(sum, unit);
    }
  }
  StoreTile(acc, n, out + m * ld, ld);
  if (HWY_LIKELY(hn::AllFalse(d8, hn::Eq(largest, hn::Set(d8, 0x7f))))) return;
  for (int j = 0; j < n; ++j) {
    if (std::none_of(cols[j], cols[j] + k, [](uint8_t code) { return (code & 0x7f) == 0x7f; })) {
      continue;
    }
    for (int i = 0; i < kRows; ++i) out[(m + i) * ld + j] = std::numeric_limits<float>::quiet_NaN();
  }
}

// Weight rows that one activation row is multiplied with at once: chains of sums enough to hide the
// latency of additions.
constexpr int kRowFp8Cols = HWY_TARGET == HWY_AVX2 ? 8 : 4;
constexpr int kRowFp4Cols = HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 ? 8 : 4;

void DirectFp8(const ActRows& a, int64_t m, const uint8_t* w, const uint8_t* scale, int64_t n,
               int64_t k, float* out, int64_t ld) {
  const int64_t at_once = m == 1 ? kRowFp8Cols : 4;
  for (int64_t j = 0; j < n; j += at_once) {
    const int cols = static_cast<int>(std::min(at_once, n - j));
    const uint8_t* const from = w + j * k;
    if (m == 1) {
      TileFp8<1, kRowFp8Cols>(a, 0, from, scale, cols, k, out + j, ld);
      continue;
    }
    for (int64_t i = 0; i < m; i += kDirectTileRows) {
      WithRows<kDirectTileRows>(std::min<int64_t>(kDirectTileRows, m - i),
                                [&]<int kRows>() HWY_ATTR {
                                  TileFp8<kRows, 4>(a, i, from, scale, cols, k, out + j, ld);
                                });
    }
  }
}

template <int kRows, int kCols>
HWY_INLINE void TileFp4(const ActRows& a, int64_t m, const uint8_t* w, const RunFactor* factors,
                        int n, int64_t k, float* HWY_RESTRICT out, int64_t ld) {
  const DF df;
  const uint16_t* rows[kRows];
  const uint8_t* cols[kCols];
  const RunFactor* col_factors[kCols];
  for (int i = 0; i < kRows; ++i) rows[i] = a.Row(m + i);
  for (int j = 0; j < kCols; ++j) {
    cols[j] = w + (j < n ? j : n - 1) * (k / 2);
    col_factors[j] = factors + (j < n ? j : n - 1) * (k / 32);
  }
  VF acc[kRows][kCols];
  for (auto& row : acc) {
    for (VF& sum : row) sum = hn::Zero(df);
  }
  for (int64_t block = 0; block < k; block += 128) {
    for (const uint8_t* col : cols) __builtin_prefetch(col + kCols * (k / 2) + block / 2);
    for (int64_t p = block; p < block + 128; p += kStretch) {
      Stretch x[kRows];
      HWY_UNROLL(4)
      for (int i = 0; i < kRows; ++i) x[i] = LoadActivations(rows[i] + p);
      HWY_UNROLL(8)
      for (int j = 0; j < kCols; ++j) {
        const Stretch v = FromE2M1(cols[j] + p / 2, col_factors[j] + p / 32);
        HWY_UNROLL(4)
        for (int i = 0; i < kRows; ++i) acc[i][j] = AddProducts(x[i], v, acc[i][j]);
      }
    }
  }
  StoreTile(acc, n, out + m * ld, ld);
}

#if HWY_TARGET == HWY_AVX2

const RunFactor* RunFactors(const uint8_t* scales, int64_t /*runs*/, RunFactor* /*factors*/) {
  return scales;
}

#else

// To `factors`.
const RunFactor* RunFactors(const uint8_t* scales, int64_t runs, RunFactor* factors) {
  const DU du;
  const hn::Rebind<uint8_t, DU> d8;
  int64_t run = 0;
  for (; run + kLanes <= runs; run += kLanes) {
    const VU bits = hn::ShiftLeft<23>(hn::PromoteTo(du, hn::LoadU(d8, scales + run)));
    hn::StoreU(hn::BitCast(DF(), bits), DF(), factors + run);
  }
  for (; run < runs; ++run) factors[run] = PowerOfTwo(scales[run] - 127);
  return factors;
}

#endif

void DirectFp4(const ActRows& a, int64_t m, const uint8_t* w, const uint8_t* scale, int64_t n,
               int64_t k, float* out, int64_t ld) {
  RunFactor buffer[kRowFp4Cols * kDirectMaxK / 32];
  const int64_t at_once = m == 1 ? kRowFp4Cols : 4;
  for (int64_t j = 0; j < n; j += at_once) {
    const int cols = static_cast<int>(std::min(at_once, n - j));
    const RunFactor* const factors = RunFactors(scale + j * (k / 32), cols * (k / 32), buffer);
    const uint8_t* const from = w + j * (k / 2);
    if (m == 1) {
      TileFp4<1, kRowFp4Cols>(a, 0, from, factors, cols, k, out + j, ld);
      continue;
    }
    for (int64_t i = 0; i < m; i += kDirectTileRows) {
      WithRows<kDirectTileRows>(std::min<int64_t>(kDirectTileRows, m - i),
                                [&]<int kRows>() HWY_ATTR {
                                  TileFp4<kRows, 4>(a, i, from, factors, cols, k, out + j, ld);
                                });
    }
  }
}

#endif  // HWY_TARGET

}  // namespace

const DotKernels* TargetDotKernels() {
  static constexpr DotKernels kKernels = {
    .name = HWY_STR(HWY_NAMESPACE),
    .bf16 = &DotBf16,
    .unpack_fp8 = &UnpackFp8,
    .unpack_fp4 = &UnpackFp4,
#if HWY_TARGET == HWY_SCALAR
    .direct_fp8 = nullptr,
    .direct_fp4 = nullptr
  };
#else
    .direct_fp8 = &DirectFp8,
    .direct_fp4 = &DirectFp4
  };
#endif
#if HWY_TARGET == HWY_AVX3
  if (const DotKernels* const extension = Extension()) return extension;
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

void AllowDotExtensions([[maybe_unused]] DotExtension last) {
#if defined(__x86_64__)
  allowed_extensions.store(last, std::memory_order_relaxed);
#endif
}

DotExtension AllowedDotExtensions() {
#if defined(__x86_64__)
  return allowed_extensions.load(std::memory_order_relaxed);
#else
  return DotExtension::kNone;
#endif
}

}  // namespace dsv4
#endif  // HWY_ONCE
