// SPDX-License-Identifier: Apache-2.0
// Quantises cache rows to the formats of kernels/op/kv_layout.h, and unpacks them to bf16 for the
// attention operators. Included once per Highway target, after foreach_target.h. Little-endian
// only.
//
// Unpacking uses integer operations on 16-bit lanes: twice as many lanes as with f32 products.

#if defined(DSV4_KERNELS_CPU_CACHE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DSV4_KERNELS_CPU_CACHE_ROWS_INL_H_
#undef DSV4_KERNELS_CPU_CACHE_ROWS_INL_H_
#else
#define DSV4_KERNELS_CPU_CACHE_ROWS_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/cpu/row_math-inl.h"
#include "kernels/op/kv_layout.h"
#include "lib/tensor/quant_format.h"

HWY_BEFORE_NAMESPACE();
namespace dsv4 {
namespace HWY_NAMESPACE {

// The bits of the largest magnitude of n elements and `floor`; NaN counts as the largest.
HWY_INLINE VU LargestBits(const uint16_t* x, int64_t n, float floor) {
  const DU du;
  VU largest = hn::Set(du, std::bit_cast<uint32_t>(floor));
  for (int64_t i = 0; i < n; i += kPairLanes) {
    const VU bits = LoadBits(x + i);
    const VU even = hn::And(hn::ShiftLeft<16>(bits), hn::Set(du, 0x7fff0000u));
    largest = hn::Max(largest, hn::Max(even, hn::And(bits, hn::Set(du, 0x7fff0000u))));
  }
  return hn::MaxOfLanes(du, largest);
}

// The scale of a quantiser's run (see ScaleOf) and its ue8m0 byte, 255 for a run with an infinity
// or a NaN.
struct RunScale {
  VF inverse;
  uint8_t byte;
};

HWY_INLINE RunScale ScaleOfRun(const uint16_t* x, int64_t n, float floor, float inverse_limit) {
  const QuantScale s = ScaleOf(hn::BitCast(DF(), LargestBits(x, n, floor)), inverse_limit);
  const uint32_t exponent = 254 - (hn::GetLane(hn::BitCast(DU(), s.inverse)) >> 23);
  return {s.inverse, static_cast<uint8_t>(std::min(exponent, 255u))};
}

// The code of y, in the low bits: kMantissa mantissa bits, the smallest normal number
// 2^kMinExponent, rounded to nearest even. At most kLargest, which a NaN gets.
template <int kMantissa, int kMinExponent, uint32_t kLargest>
HWY_INLINE VU EncodeMagnitude(VF y) {
  const DF d;
  const DU du;
  constexpr int kDropped = 23 - kMantissa;
  // Below the smallest normal number codes count the steps there, which are those of floats from
  // `magic` on: the addition rounds to them.
  constexpr uint32_t kMagic = static_cast<uint32_t>(127 + kMinExponent + kDropped) << 23;
  const VF magnitude = hn::Abs(y);
  const VU bits = hn::BitCast(du, magnitude);
  const VU small = hn::Sub(hn::BitCast(du, hn::Add(magnitude, hn::BitCast(d, hn::Set(du, kMagic)))),
                           hn::Set(du, kMagic));
  const VU odd = hn::And(hn::ShiftRight<kDropped>(bits), hn::Set(du, 1));
  const VU rounded = hn::ShiftRight<kDropped>(
      hn::Add(hn::Add(bits, hn::Set(du, (1u << (kDropped - 1)) - 1)), odd));
  constexpr uint32_t kBias = static_cast<uint32_t>(126 + kMinExponent) << kMantissa;
  const VU normal = hn::Min(hn::Sub(rounded, hn::Set(du, kBias)), hn::Set(du, kLargest));
  constexpr uint32_t kLeast = static_cast<uint32_t>(127 + kMinExponent) << 23;
  return hn::IfThenElse(hn::Lt(bits, hn::Set(du, kLeast)), small, normal);
}

// e4m3, for |y| <= 448 (a NaN stays one), and e2m1, for |y| <= 6.
HWY_INLINE VU EncodeE4M3(VF y) {
  const VU sign = hn::And(hn::ShiftRight<24>(hn::BitCast(DU(), y)), hn::Set(DU(), 0x80));
  return hn::Or(EncodeMagnitude<3, -6, 0x7f>(y), sign);
}
HWY_INLINE VU EncodeE2M1(VF y) {
  const VU sign = hn::And(hn::ShiftRight<28>(hn::BitCast(DU(), y)), hn::Set(DU(), 8));
  return hn::Or(EncodeMagnitude<1, 0, 7>(y), sign);
}

// Writes the codes of e4m3 of kPairLanes values, |v| <= 448.
HWY_INLINE void StoreE4M3(VPair v, std::byte* to) {
  const hn::Rebind<uint16_t, DF> du16;
  const VU codes = hn::Or(EncodeE4M3(v.even), hn::ShiftLeft<8>(EncodeE4M3(v.odd)));
  hn::StoreU(hn::TruncateTo(du16, codes), du16, reinterpret_cast<uint16_t*>(to));
}

// The row of 512 in kPacked.
HWY_INLINE void PackRow(const uint16_t* row, std::byte* data, std::byte* scales) {
  constexpr int64_t kPlain = kKvRowElements - kKvRopeElements;
  for (int64_t begin = 0; begin < kPlain; begin += kKvQuantRun) {
    const RunScale s = ScaleOfRun(row + begin, kKvQuantRun, 1e-4f, 1.0f / 448.0f);
    *scales++ = std::byte{s.byte};
    for (int64_t i = begin; i < begin + kKvQuantRun; i += kPairLanes) {
      const VPair v = LoadPair(row + i);
      StoreE4M3({hn::Mul(v.even, s.inverse), hn::Mul(v.odd, s.inverse)}, data + i);
    }
  }
  *scales = std::byte{0};
  std::memcpy(data + kPlain, row + kPlain, kKvRopeElements * sizeof(uint16_t));
}

// The row of 512 in kFp8PerTensor.
HWY_INLINE void PackFp8Row(const uint16_t* row, std::byte* data) {
  const DF d;
  if (hn::GetLane(LargestBits(row, kKvRowElements, 0)) >= 0x7f800000u) {
    std::memset(data, 0x7f, kKvRowElements);
    return;
  }
  const VF inverse = hn::Set(d, 1 / kFp8RowScale), limit = hn::Set(d, 448.0f);
  const auto limited = [&](VF v) {
    return hn::Max(hn::Min(hn::Mul(v, inverse), limit), hn::Neg(limit));
  };
  for (int64_t i = 0; i < kKvRowElements; i += kPairLanes) {
    const VPair v = LoadPair(row + i);
    StoreE4M3({limited(v.even), limited(v.odd)}, data + i);
  }
}

// Rounds a query of 512 over such rows to e4m3, in place. A normed query is far below 448.
HWY_INLINE void QuantiseQuery(uint16_t* q) {
  const VF scale = hn::Set(DF(), kFp8RowScale), inverse = hn::Set(DF(), 1 / kFp8RowScale);
  for (int64_t i = 0; i < kKvRowElements; i += kPairLanes) {
    VPair v = LoadPair(q + i);
    v.even = hn::Mul(RoundMantissa<3, -6>(hn::Mul(v.even, inverse)), scale);
    v.odd = hn::Mul(RoundMantissa<3, -6>(hn::Mul(v.odd, inverse)), scale);
    StorePair(v, q + i);  // exact in bf16
  }
}

// The key of 128 in kIndexFp4.
HWY_INLINE void PackIndexKey(const uint16_t* key, std::byte* data, std::byte* scales) {
  const hn::Rebind<uint8_t, DF> du8;
  for (int64_t begin = 0; begin < kIndexKeyElements; begin += kFp4Run) {
    const RunScale s = ScaleOfRun(key + begin, kFp4Run, 6 * 0x1p-126f, 1.0f / 6.0f);
    *scales++ = std::byte{s.byte};
    for (int64_t i = begin; i < begin + kFp4Run; i += kPairLanes) {
      const VPair v = LoadPair(key + i);
      const VU even = EncodeE2M1(hn::Mul(v.even, s.inverse));
      const VU odd = EncodeE2M1(hn::Mul(v.odd, s.inverse));
      const auto codes = hn::TruncateTo(du8, hn::Or(even, hn::ShiftLeft<4>(odd)));
      hn::StoreU(codes, du8, reinterpret_cast<uint8_t*>(data + i / 2));
    }
  }
}

// Writes a row of 512 to a pool: kBf16 or kPacked through the act_quant of its first 448.
HWY_INLINE void StoreKvRow(const uint16_t* row, const RowPool& pool, int32_t block, int64_t slot) {
  if (pool.format == RowFormat::kFp8PerTensor) return PackFp8Row(row, pool.Row(block, slot));
  if (pool.format == RowFormat::kPacked) {
    return PackRow(row, pool.Row(block, slot), pool.Scales(block, slot));
  }
  constexpr int64_t kPlain = kKvRowElements - kKvRopeElements;
  auto* out = reinterpret_cast<uint16_t*>(pool.Row(block, slot));
  for (int64_t i = 0; i < kPlain; i += kKvQuantRun) ActQuantRun<kKvQuantRun>(row + i, out + i);
  std::memcpy(out + kPlain, row + kPlain, kKvRopeElements * sizeof(uint16_t));
}

// An e4m3 code times 2^(scale - 127) as bf16. A normal code of magnitude m is m << 4 plus the
// exponents' difference; the eight others are brought into that form by a table. Zero stays zero.
alignas(16) inline constexpr int8_t kE4M3Subnormal[16] = {0, -16, -8, -4, 0, 2, 4, 6};

// `count` codes times 2^(scale - 127), a multiple of 64.
HWY_INLINE void UnpackCodes(const int8_t* HWY_RESTRICT codes, int64_t count, int32_t scale,
                            uint16_t* HWY_RESTRICT out) {
  const auto exponent = static_cast<int16_t>((scale - 7) * 128);
#if HWY_TARGET == HWY_SCALAR
  for (int64_t i = 0; i < count; ++i) {
    const int magnitude = codes[i] & 0x7f, sign = codes[i] & 0x80;
    const int shifted = magnitude < 8 ? kE4M3Subnormal[magnitude] : magnitude;
    const int bits = magnitude == 0 ? 0 : shifted * 16 + exponent;
    out[i] = static_cast<uint16_t>(bits | sign << 8);
  }
#else
  const hn::CappedTag<int16_t, 32> d16;
  const hn::Rebind<int8_t, decltype(d16)> d8;
  const auto table = hn::LoadDup128(d8, kE4M3Subnormal);
  const auto low = hn::Set(d16, 0x7f);
  for (int64_t i = 0; i < count; i += static_cast<int64_t>(hn::Lanes(d16))) {
    const auto code = hn::LoadU(d8, codes + i);
    const auto magnitude = hn::And(code, hn::Set(d8, 0x7f));
    const auto shifted = hn::IfThenElse(hn::Lt(magnitude, hn::Set(d8, 8)),
                                        hn::TableLookupBytes(table, magnitude), magnitude);
    const auto wide = hn::PromoteTo(d16, code);  // its sign is the row's
    const auto bits =
        hn::Add(hn::ShiftLeft<4>(hn::PromoteTo(d16, shifted)), hn::Set(d16, exponent));
    const auto zero = hn::Eq(hn::And(wide, low), hn::Zero(d16));
    const auto sign = hn::And(wide, hn::Set(d16, static_cast<int16_t>(0x8000)));
    hn::StoreU(hn::Or(hn::IfThenZeroElse(zero, bits), sign), d16,
               reinterpret_cast<int16_t*>(out + i));
  }
#endif
}

// The elements of a kFp8PerTensor row as bf16: out [512].
HWY_INLINE void UnpackFp8Row(const std::byte* HWY_RESTRICT data, uint16_t* HWY_RESTRICT out) {
  constexpr auto kScale = static_cast<int32_t>(std::bit_cast<uint32_t>(kFp8RowScale) >> 23);
  if (data[0] == std::byte{0x7f}) [[unlikely]] {  // then all elements are
    std::fill_n(out, kKvRowElements, uint16_t{0x7fff});
    return;
  }
  UnpackCodes(reinterpret_cast<const int8_t*>(data), kKvRowElements, kScale, out);
}

// The elements of a kPacked row as bf16: out [512]. Every element of a run of scale 255 is a NaN.
HWY_INLINE void UnpackRow(const std::byte* HWY_RESTRICT data, const std::byte* HWY_RESTRICT scales,
                          uint16_t* HWY_RESTRICT out) {
  constexpr int64_t kPlain = kKvRowElements - kKvRopeElements;
  const auto* codes = reinterpret_cast<const int8_t*>(data);
  for (int64_t begin = 0; begin < kPlain; begin += kKvQuantRun) {
    const int32_t scale = static_cast<uint8_t>(scales[begin / kKvQuantRun]);
    if (scale == 255) [[unlikely]] {
      std::fill_n(out + begin, kKvQuantRun, uint16_t{0x7fff});
      continue;
    }
    UnpackCodes(codes + begin, kKvQuantRun, scale, out + begin);
  }
  std::memcpy(out + kPlain, data + kPlain, kKvRopeElements * sizeof(uint16_t));
}

}  // namespace HWY_NAMESPACE
}  // namespace dsv4
HWY_AFTER_NAMESPACE();

#endif  // include guard, toggled per target
