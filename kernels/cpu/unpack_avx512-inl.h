// SPDX-License-Identifier: Apache-2.0
// Unpacks weights to bf16 in AVX-512 registers with VBMI, for the source files that are compiled
// for it. Byte permutes look up 64 e4m3 magnitudes at a time. vdpbf16ps and AMX treat subnormal
// bf16 as zero, so unpacked weights are never subnormal.
#pragma once

#include <immintrin.h>

#include <array>
#include <cstdint>

namespace dsv4 {
namespace {

// The distance of weight prefetches: the next tile, or for short rows a later one. The hardware
// prefetcher stops at each page and starts anew at each row.
constexpr int64_t AheadBytes(int64_t tile_bytes) { return tile_bytes < 4096 ? 4096 : tile_bytes; }

inline void Prefetch(const void* line) {
  _mm_prefetch(static_cast<const char*>(line), _MM_HINT_T0);
}

// bf16 bits of the 128 e4m3 magnitudes times 2^parity, as separate low and high bytes. Multiplying
// by an even power of two is then one addition to the high bytes, except for zero and NaN.
struct E4M3Tables {
  alignas(64) std::array<uint8_t, 128> low[2], high[2];
};

constexpr E4M3Tables MakeE4M3Tables() {
  E4M3Tables t{};
  for (int parity = 0; parity < 2; ++parity) {
    for (int i = 0; i < 128; ++i) {
      int exponent = i >> 3, mantissa = i & 7, bits = 0;
      if (exponent == 0 && mantissa != 0) {
        exponent = 1;
        while (mantissa < 8) {
          mantissa <<= 1;
          --exponent;
        }
        mantissa &= 7;
        bits = ((exponent + 120 + parity) << 7) | (mantissa << 4);
      } else if (exponent != 0) {
        bits = ((exponent + 120 + parity) << 7) | (mantissa << 4);
      }
      if (i == 127) bits = 0x7fc0;
      t.low[parity][i] = static_cast<uint8_t>(bits & 0xff);
      t.high[parity][i] = static_cast<uint8_t>(bits >> 8);
    }
  }
  return t;
}

constexpr E4M3Tables kE4M3 = MakeE4M3Tables();

struct Fp8Unpacker {
  __m512i low0, low1, high0, high1;

  explicit Fp8Unpacker(int fold) {
    const int parity = fold & 1;
    const __m512i add = _mm512_set1_epi8(static_cast<char>((fold - parity) / 2));
    low0 = _mm512_load_si512(kE4M3.low[parity].data());
    low1 = _mm512_load_si512(kE4M3.low[parity].data() + 64);
    const __m512i h0 = _mm512_load_si512(kE4M3.high[parity].data());
    const __m512i h1 = _mm512_load_si512(kE4M3.high[parity].data() + 64);
    high0 = _mm512_mask_add_epi8(h0, ~__mmask64{1}, h0, add);
    high1 = _mm512_mask_add_epi8(h1, ~(__mmask64{1} << 63), h1, add);
  }

  // Unpacks 64 weights to two vectors of 32.
  void Unpack(const uint8_t* w, __m512i& first, __m512i& second) const {
    // The unpacks below interleave within 128-bit lanes; this order of bytes makes their results
    // sorted.
    const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    const __m512i v = _mm512_permutexvar_epi64(order, _mm512_loadu_si512(w));
    const __m512i low = _mm512_permutex2var_epi8(low0, v, low1);
    const __m512i magnitude = _mm512_permutex2var_epi8(high0, v, high1);
    constexpr int kOrAnd = 0xf8;  // a | (b & c)
    const __m512i high =
        _mm512_ternarylogic_epi64(magnitude, v, _mm512_set1_epi8(static_cast<char>(0x80)), kOrAnd);
    first = _mm512_unpacklo_epi8(low, high);
    second = _mm512_unpackhi_epi8(low, high);
  }
};

inline int Fold(const uint8_t* scale, int64_t i) { return scale == nullptr ? 0 : scale[i] - 127; }

// bf16 bits of the 16 e2m1 values, twice: vpermw reads five index bits, and the highest belongs to
// the neighbouring code.
alignas(64) constexpr uint16_t kE2M1[32] = {
    0x0000, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0, 0x8000, 0xbf00, 0xbf80,
    0xbfc0, 0xc000, 0xc040, 0xc080, 0xc0c0, 0x0000, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040,
    0x4080, 0x40c0, 0x8000, 0xbf00, 0xbf80, 0xbfc0, 0xc000, 0xc040, 0xc080, 0xc0c0};
constexpr __mmask32 kE2M1Nonzero = 0xfefefefe;
constexpr int64_t kRuns = 16;  // runs whose scales one vector prepares

// For each of `runs` runs, stores the addend that applies its scale to the bf16 bits of a nonzero
// value, in both halves of a word. Writes whole groups of kRuns words.
inline void StoreFolds(const uint8_t* scale, int64_t runs, uint32_t* folds) {
  for (int64_t r = 0; r < runs; r += kRuns) {
    const int64_t left = runs - r;
    const auto mask = static_cast<__mmask16>(left < kRuns ? (1u << left) - 1 : 0xffffu);
    const __m512i bytes = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, scale + r));
    const __m512i fold = _mm512_slli_epi32(_mm512_sub_epi32(bytes, _mm512_set1_epi32(127)), 7);
    const __m512i low = _mm512_and_si512(fold, _mm512_set1_epi32(0xffff));
    _mm512_store_si512(folds + r, _mm512_or_si512(low, _mm512_slli_epi32(fold, 16)));
  }
}

// Unpacks one run of 32 weights.
inline __m512i UnpackRun(const uint8_t* w, uint32_t fold) {
  const __m512i table = _mm512_load_si512(kE2M1);
  const __m512i scaled =
      _mm512_mask_add_epi16(table, kE2M1Nonzero, table, _mm512_set1_epi32(static_cast<int>(fold)));
  const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w)));
  // In each pair of words, word 0 is at bit 0 of the byte and word 1 at bit 4.
  const __m512i shifts = _mm512_set1_epi64(0x2424202004040000);
  return _mm512_permutexvar_epi16(_mm512_multishift_epi64_epi8(shifts, bytes), scaled);
}

}  // namespace
}  // namespace dsv4
