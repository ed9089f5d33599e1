// SPDX-License-Identifier: Apache-2.0
// Weight rows as a file has them, for processors with AVX512-VNNI: the formats that most files have
// are unpacked in registers, to interleaved rows (block_interleave_avx512-inl.h) in memory or, for
// few activation rows, into products. Those have the order of sums of DotInt8Vnni, so the bits are
// the same, too. Nothing here may run before block_dot.cc has asked the processor.
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/cpu/block_dot.h"
#include "kernels/cpu/block_formats.h"
#include "kernels/cpu/block_interleave_avx512-inl.h"
#include "lib/tensor/block_grids.h"

namespace dsv4 {
namespace {

template <class T>
T Load(const uint8_t* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}
__m128i Load16Bytes(const uint8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
__m256i Load32Bytes(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
// 32 bytes, twice.
__m512i Load32BytesTwice(const uint8_t* p) { return _mm512_broadcast_i64x4(Load32Bytes(p)); }
__m512i Join(__m256i low, __m256i high) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
// The lower half shifted to the right by `low` bits, the upper one by `high`, in words of 16 bits.
__m512i ShiftHalves(__m512i v, int16_t low, int16_t high) {
  return _mm512_srlv_epi16(v, Join(_mm256_set1_epi16(low), _mm256_set1_epi16(high)));
}
constexpr int kOrAnd = 0xf8;  // a | (b & c)
constexpr int kAndOr = 0xea;  // (a & b) | c

__m512 HalfToAll(const uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_set1_epi16(static_cast<int16_t>(Load<uint16_t>(p))));
}
// Each of the lower eight lanes twice.
__m512 Twice(__m512 eight) {
  return _mm512_permutexvar_ps(_mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0),
                               eight);
}
// Each of the upper eight lanes twice.
__m512 UpperTwice(__m512 v) {
  return _mm512_permutexvar_ps(
      _mm512_set_epi32(15, 15, 14, 14, 13, 13, 12, 12, 11, 11, 10, 10, 9, 9, 8, 8), v);
}

// What 256 elements of a weight row are: codes, and a scale and a minimum for each 16 of them.
struct Elements256 {
  __m512i codes[kInterleavedParts];
  __m512 scale, min;

  // In the order of interleaved rows.
  template <bool kHasMin>
  void Interleave() {
    dsv4::Interleave(codes);
    scale = InterleavedRuns(scale);
    if constexpr (kHasMin) min = InterleavedRuns(min);
  }
};

// A format has: kType; kHasMin; kBytes of 256 elements; Unpack.
struct Q8_0 {
  static constexpr BlockType kType = BlockType::kQ8_0;
  static constexpr bool kHasMin = false;
  static constexpr int64_t kBytes = 8 * 34;
  static void Unpack(const uint8_t* b, Elements256& e) {
    constexpr int kBlock = 34;
    for (int i = 0; i < kInterleavedParts; ++i) {
      e.codes[i] =
          Join(Load32Bytes(b + kBlock * 2 * i + 2), Load32Bytes(b + kBlock * (2 * i + 1) + 2));
    }
    const auto d = [&](int i) { return static_cast<int16_t>(Load<uint16_t>(b + kBlock * i)); };
    const __m128i scales = _mm_set_epi16(d(7), d(6), d(5), d(4), d(3), d(2), d(1), d(0));
    e.scale = Twice(_mm512_cvtph_ps(_mm256_castsi128_si256(scales)));
  }
};

struct Q2K {
  static constexpr BlockType kType = BlockType::kQ2K;
  static constexpr bool kHasMin = true;
  static constexpr int64_t kBytes = 84;
  static void Unpack(const uint8_t* b, Elements256& e) {
    const __m512i both = _mm512_cvtepu8_epi32(Load16Bytes(b));
    const __m512i low = _mm512_set1_epi32(15);
    e.scale = _mm512_mul_ps(HalfToAll(b + 80), _mm512_cvtepi32_ps(_mm512_and_si512(both, low)));
    e.min = _mm512_mul_ps(HalfToAll(b + 82), _mm512_cvtepi32_ps(_mm512_srli_epi32(both, 4)));
    const __m512i two = _mm512_set1_epi8(3);
    for (int half = 0; half < 2; ++half) {
      const __m512i bits = Load32BytesTwice(b + 16 + 32 * half);
      e.codes[2 * half] = _mm512_and_si512(ShiftHalves(bits, 0, 2), two);
      e.codes[2 * half + 1] = _mm512_and_si512(ShiftHalves(bits, 4, 6), two);
    }
  }
};

// Scales and minima of Q4_K and Q5_K: of each four 6-bit numbers the last four have their upper two
// bits with the first.
void SixBitScales(const uint8_t* b, Elements256& e) {
  // b + 4: scales 0 to 3, minima 0 to 3, lower nibbles of scales and upper ones of minima 4 to 7.
  const __m128i words = Load16Bytes(b);
  const __m128i first = _mm_and_si128(
      _mm_srlv_epi32(_mm_shuffle_epi32(words, _MM_SHUFFLE(3, 2, 3, 1)), _mm_setr_epi32(0, 0, 0, 4)),
      _mm_setr_epi32(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f));
  const __m128i upper = _mm_srli_epi32(_mm_shuffle_epi32(words, _MM_SHUFFLE(2, 2, 1, 1)), 2);
  const __m128i all =
      _mm_ternarylogic_epi32(first, upper, _mm_setr_epi32(0, 0x30303030, 0, 0x30303030), kOrAnd);
  const __m512i both = _mm512_cvtepu8_epi32(all);
  const __m512 factors =
      _mm512_insertf32x8(HalfToAll(b), _mm256_cvtph_ps(_mm_set1_epi16(Load<int16_t>(b + 2))), 1);
  const __m512 products = _mm512_mul_ps(factors, _mm512_cvtepi32_ps(both));
  e.scale = Twice(products);
  e.min = UpperTwice(products);
}

struct Q4K {
  static constexpr BlockType kType = BlockType::kQ4K;
  static constexpr bool kHasMin = true;
  static constexpr int64_t kBytes = 144;
  static void Unpack(const uint8_t* b, Elements256& e) {
    SixBitScales(b, e);
    for (int part = 0; part < kInterleavedParts; ++part) {
      e.codes[part] = _mm512_and_si512(ShiftHalves(Load32BytesTwice(b + 16 + 32 * part), 0, 4),
                                       _mm512_set1_epi8(15));
    }
  }
};

struct Q5K {
  static constexpr BlockType kType = BlockType::kQ5K;
  static constexpr bool kHasMin = true;
  static constexpr int64_t kBytes = 176;
  static void Unpack(const uint8_t* b, Elements256& e) {
    SixBitScales(b, e);
    const __m512i high = Load32BytesTwice(b + 16);
    for (int part = 0; part < kInterleavedParts; ++part) {
      const __m512i nibbles = _mm512_and_si512(
          ShiftHalves(Load32BytesTwice(b + 48 + 32 * part), 0, 4), _mm512_set1_epi8(15));
      const auto bit = static_cast<int8_t>(1 << (2 * part));
      const __mmask64 fifth = _mm512_test_epi8_mask(
          high, Join(_mm256_set1_epi8(bit), _mm256_set1_epi8(static_cast<int8_t>(bit * 2))));
      e.codes[part] = _mm512_mask_add_epi8(nibbles, fifth, nibbles, _mm512_set1_epi8(16));
    }
  }
};

struct Q6K {
  static constexpr BlockType kType = BlockType::kQ6K;
  static constexpr bool kHasMin = false;
  static constexpr int64_t kBytes = 210;
  static void Unpack(const uint8_t* b, Elements256& e) {
    e.scale = _mm512_mul_ps(HalfToAll(b + 208),
                            _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(Load16Bytes(b + 192))));
    const __m512i low = _mm512_set1_epi8(15), two = _mm512_set1_epi8(0x30),
                  offset = _mm512_set1_epi8(32);
    for (int half = 0; half < 2; ++half) {
      const __m512i nibbles = _mm512_loadu_si512(b + 64 * half);
      const __m512i high = Load32BytesTwice(b + 128 + 32 * half);
      const __m512i lower =
          _mm512_sllv_epi16(high, Join(_mm256_set1_epi16(4), _mm256_set1_epi16(2)));
      const auto join = [&](__m512i four, __m512i bits) {
        return _mm512_sub_epi8(
            _mm512_ternarylogic_epi64(_mm512_and_si512(bits, two), four, low, kOrAnd), offset);
      };
      e.codes[2 * half] = join(nibbles, lower);
      e.codes[2 * half + 1] = join(_mm512_srli_epi16(nibbles, 4), ShiftHalves(high, 0, 2));
    }
  }
};

// The codebook of IQ2_XXS with two bits for each of an entry's 8 magnitudes.
alignas(64) constexpr std::array<uint16_t, 256> kIq2XxsWords = [] {
  const BlockGrid<256, 8> grid = grids::Expand<256, 8>(grids::kIq2XxsPacked, grids::kIq2Levels);
  std::array<uint16_t, 256> words{};
  for (size_t entry = 0; entry < words.size(); ++entry) {
    for (size_t i = 0; i < 8; ++i) {
      size_t level = 0;
      while (grids::kIq2Levels[level] != grid[entry][i]) ++level;
      words[entry] = static_cast<uint16_t>(words[entry] | level << (2 * i));
    }
  }
  return words;
}();
// Two magnitudes for each four bits; the fifth bit of an index belongs to others.
alignas(64) constexpr std::array<uint16_t, 32> kIq2Pairs = [] {
  std::array<uint16_t, 32> pairs{};
  for (size_t i = 0; i < pairs.size(); ++i) {
    // No entry has a fourth level.
    const auto level = [](size_t bits) { return bits % 4 == 3 ? 0 : grids::kIq2Levels[bits % 4]; };
    pairs[i] = static_cast<uint16_t>(level(i) | level(i / 4) << 8);
  }
  return pairs;
}();

struct Iq2Xxs {
  static constexpr BlockType kType = BlockType::kIq2Xxs;
  static constexpr bool kHasMin = false;
  static constexpr int64_t kBytes = 66;

  // The entries of 32 indices.
  static __m512i Entries(__m256i indices) {
    const __m512i at = _mm512_cvtepu8_epi16(indices);
    const auto look_up = [&](size_t first) {
      return _mm512_permutex2var_epi16(_mm512_load_si512(&kIq2XxsWords[first]), at,
                                       _mm512_load_si512(&kIq2XxsWords[first + 32]));
    };
    const __mmask32 second = _mm512_test_epi16_mask(at, _mm512_set1_epi16(64));
    const __mmask32 upper = _mm512_test_epi16_mask(at, _mm512_set1_epi16(128));
    return _mm512_mask_blend_epi16(upper, _mm512_mask_blend_epi16(second, look_up(0), look_up(64)),
                                   _mm512_mask_blend_epi16(second, look_up(128), look_up(192)));
  }

  // 32 times 8 signs from eight words of four times 7, with their parity as the eighth.
  static __m256i Signs(__m256i words) {
    const auto field = [&](int shift, uint32_t mask, __m256i others) {
      return _mm256_ternarylogic_epi32(_mm256_slli_epi32(words, shift),
                                       _mm256_set1_epi32(static_cast<int32_t>(mask)), others,
                                       kAndOr);
    };
    const __m256i seven =
        field(3, 0x7f000000, field(2, 0x7f0000, field(1, 0x7f00, field(0, 0x7f, __m256i{}))));
    // 0x80 for each odd number of ones among four bits.
    constexpr int8_t kOdd = -128;
    const __m256i odd = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, kOdd, kOdd, 0, kOdd, 0, 0, kOdd, kOdd, 0, 0, kOdd, 0, kOdd, kOdd, 0));
    const __m256i low = _mm256_set1_epi8(15);
    const __m256i first = _mm256_shuffle_epi8(odd, _mm256_and_si256(seven, low));
    const __m256i second =
        _mm256_shuffle_epi8(odd, _mm256_and_si256(_mm256_srli_epi16(seven, 4), low));
    constexpr int kXor = 0x96;
    return _mm256_ternarylogic_epi32(seven, first, second, kXor);
  }

  static void Unpack(const uint8_t* b, Elements256& e) {
    const __m512i groups = _mm512_loadu_si512(b + 2);
    const __m512i split = _mm512_permutexvar_epi32(
        _mm512_set_epi32(15, 13, 11, 9, 7, 5, 3, 1, 14, 12, 10, 8, 6, 4, 2, 0), groups);
    const __m256i words = _mm512_extracti64x4_epi64(split, 1);
    const __m256 steps =
        _mm256_add_ps(_mm256_cvtepi32_ps(_mm256_srli_epi32(words, 28)), _mm256_set1_ps(0.5f));
    const __m256 d = _mm256_cvtph_ps(_mm_set1_epi16(Load<int16_t>(b)));
    e.scale = Twice(
        _mm512_castps256_ps512(_mm256_mul_ps(_mm256_mul_ps(d, steps), _mm256_set1_ps(0.25f))));
    const __m512i entries = Entries(_mm512_castsi512_si256(split));
    alignas(32) uint64_t signs[kInterleavedParts];
    _mm256_store_si256(reinterpret_cast<__m256i*>(signs), Signs(words));
    const __m512i pairs = _mm512_load_si512(kIq2Pairs.data());
    const __m512i shifts = _mm512_set1_epi64(0x000c000800040000);
    for (int part = 0; part < kInterleavedParts; ++part) {
      // Each entry four times.
      const auto quad = [&](int i) {
        return static_cast<int64_t>(0x0001000100010001u * static_cast<uint64_t>(8 * part + i));
      };
      const __m512i four = _mm512_permutexvar_epi16(
          _mm512_set_epi64(quad(7), quad(6), quad(5), quad(4), quad(3), quad(2), quad(1), quad(0)),
          entries);
      const __m512i magnitudes = _mm512_permutexvar_epi16(_mm512_srlv_epi16(four, shifts), pairs);
      e.codes[part] =
          _mm512_mask_sub_epi8(magnitudes, signs[part], _mm512_setzero_si512(), magnitudes);
    }
  }
};

struct Mxfp4 {
  static constexpr BlockType kType = BlockType::kMxfp4;
  static constexpr bool kHasMin = false;
  static constexpr int64_t kBytes = 8 * 17;
  static void Unpack(const uint8_t* b, Elements256& e) {
    constexpr int kBlock = 17;
    // e2m1 doubled; code 8 is 0.
    const __m512i table = _mm512_broadcast_i32x4(
        _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12));
    const __m512i shifts =
        _mm512_broadcast_i64x4(_mm256_setr_m128i(_mm_setzero_si128(), _mm_set1_epi16(4)));
    for (int part = 0; part < kInterleavedParts; ++part) {
      const uint8_t* const block = b + kBlock * 2 * part + 1;
      const __m512i bytes = Join(_mm256_broadcastsi128_si256(Load16Bytes(block)),
                                 _mm256_broadcastsi128_si256(Load16Bytes(block + kBlock)));
      const __m512i nibbles =
          _mm512_and_si512(_mm512_srlv_epi16(bytes, shifts), _mm512_set1_epi8(15));
      e.codes[part] = _mm512_shuffle_epi8(table, nibbles);
    }
    uint64_t exponents = 0;
    for (int i = 0; i < 8; ++i) exponents |= uint64_t{b[kBlock * i]} << (8 * i);
    // 2^(exponent - 128), of which the two smallest are subnormal numbers and 255 is NaN.
    const __m256i exponent =
        _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(exponents)));
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(exponent, _mm256_set1_epi32(1)), 23);
    const __m256i finite =
        _mm256_mask_sllv_epi32(normal, _mm256_cmplt_epi32_mask(exponent, _mm256_set1_epi32(2)),
                               _mm256_set1_epi32(0x200000), exponent);
    const __m256i bits =
        _mm256_mask_mov_epi32(finite, _mm256_cmpeq_epi32_mask(exponent, _mm256_set1_epi32(255)),
                              _mm256_set1_epi32(0x7fc00000));
    e.scale = Twice(_mm512_castps256_ps512(_mm256_castsi256_ps(bits)));
  }
};

// The sums of kRows activation rows with a weight row.
template <class Format, int kRows>
struct Sums {
  __m512 acc[kRows];

  Sums() {
    for (int i = 0; i < kRows; ++i) acc[i] = _mm512_setzero_ps();
  }

  // Adds the products of elements from p on, which lie at `b`, and of packed rows `a`.
  void Add(const uint8_t* b, const std::byte* a, int64_t k, int64_t p) {
    Elements256 e;
    Format::Unpack(b, e);
    e.Interleave<Format::kHasMin>();
    const InterleavedRow at(k);
    const __m512i begin = SumsBegin(e.codes);
    for (int i = 0; i < kRows; ++i) {
      const std::byte* const row = a + i * PackedInt8Bytes(k);
      // Chains of their own.
      __m512i sum = _mm512_setzero_si512();
      for (int part = 0; part < kInterleavedParts; ++part) {
        sum = _mm512_dpbusd_epi32(sum, _mm512_loadu_si512(row + p + 64 * part), e.codes[part]);
      }
      const __m512 scale = _mm512_mul_ps(e.scale, _mm512_loadu_ps(row + at.Scale(p)));
      sum = _mm512_add_epi32(sum, begin);
      acc[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale, acc[i]);
      if constexpr (Format::kHasMin) {
        acc[i] = _mm512_fnmadd_ps(e.min, _mm512_loadu_ps(row + at.Min(p)), acc[i]);
      }
    }
  }

  void Store(float* out, int64_t ld) const {
    for (int i = 0; i < kRows; ++i) out[i * ld] = _mm512_reduce_add_ps(acc[i]);
  }
};

constexpr int64_t kAheadBytes = 4096;  // of prefetches

// Weight rows [0, n) by kRows activation rows. Two rows at a time, so that two chains of sums run:
// one of the first half of all rows, one of the second.
template <class Format, int kRows>
void Dot(const std::byte* a, const uint8_t* w, int64_t n, int64_t k, float* out, int64_t ld) {
  const int64_t row_bytes = k / kInterleaved * Format::kBytes, half = n / 2;
  const auto ahead = [](const uint8_t* p) {
    for (int64_t i = 0; i < Format::kBytes; i += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(p + kAheadBytes + i), _MM_HINT_T0);
    }
  };
  for (int64_t j = 0; j < half; ++j) {
    const uint8_t* first = w + j * row_bytes;
    const uint8_t* second = first + half * row_bytes;
    Sums<Format, kRows> sums[2];
    for (int64_t p = 0; p < k;
         p += kInterleaved, first += Format::kBytes, second += Format::kBytes) {
      ahead(first);
      ahead(second);
      sums[0].Add(first, a, k, p);
      sums[1].Add(second, a, k, p);
    }
    sums[0].Store(out + j, ld);
    sums[1].Store(out + j + half, ld);
  }
  if (n % 2 != 0) {
    const uint8_t* b = w + (n - 1) * row_bytes;
    Sums<Format, kRows> sums;
    for (int64_t p = 0; p < k; p += kInterleaved, b += Format::kBytes) sums.Add(b, a, k, p);
    sums.Store(out + n - 1, ld);
  }
}

template <class Format>
void Rows(const std::byte* a, int64_t m, const uint8_t* w, int64_t n, int64_t k, float* out,
          int64_t ld) {
  int64_t i = 0;
  const auto at = [&](int64_t row) { return a + row * PackedInt8Bytes(k); };
  for (; i + 4 <= m; i += 4) Dot<Format, 4>(at(i), w, n, k, out + i * ld, ld);
  if (i + 2 <= m) {
    Dot<Format, 2>(at(i), w, n, k, out + i * ld, ld);
    i += 2;
  }
  if (i < m) Dot<Format, 1>(at(i), w, n, k, out + i * ld, ld);
}

template <bool kHasMin>
void Store(Elements256& e, const InterleavedRow& at, int64_t p, std::byte* unpacked) {
  e.Interleave<kHasMin>();
  for (int part = 0; part < kInterleavedParts; ++part) {
    _mm512_storeu_si512(unpacked + p + 64 * part, e.codes[part]);
  }
  _mm512_storeu_ps(unpacked + at.Scale(p), e.scale);
  if constexpr (kHasMin) _mm512_storeu_ps(unpacked + at.Min(p), e.min);
  _mm512_storeu_si512(unpacked + at.Begin(p), SumsBegin(e.codes));
}

// Elements [p, k) of a row at `data`.
void StoreAny(BlockType type, const uint8_t* data, int64_t p, int64_t k, std::byte* unpacked) {
  constexpr int64_t kPiece = 2048;
  alignas(64) int8_t codes[kPiece];
  alignas(64) float scale[kPiece / kBlockRun], min[kPiece / kBlockRun] = {};
  const InterleavedRow at(k);
  for (; p < k; p += kPiece) {
    const int64_t count = std::min(kPiece, k - p);
    if (const int64_t filled = FilledElements(count); filled != count) {
      std::fill(codes + count, codes + filled, int8_t{0});
      std::fill(scale + count / kBlockRun, scale + filled / kBlockRun, 0.f);
      std::fill(min + count / kBlockRun, min + filled / kBlockRun, 0.f);
    }
    UnpackBlocks(type, data + BlockBytes(type, p), count, codes, scale, min);
    for (int64_t i = 0; i < count; i += kInterleaved) {
      Elements256 e;
      for (int part = 0; part < kInterleavedParts; ++part) {
        e.codes[part] = _mm512_load_si512(codes + i + 64 * part);
      }
      e.scale = _mm512_load_ps(scale + i / kBlockRun);
      e.min = _mm512_load_ps(min + i / kBlockRun);
      Store<true>(e, at, p + i, unpacked);
    }
  }
}

template <class Format>
void StoreRow(BlockType type, const uint8_t* data, int64_t k, std::byte* unpacked) {
  const InterleavedRow at(k);
  int64_t p = 0;
  for (; p + kInterleaved <= k; p += kInterleaved) {
    Elements256 e;
    Format::Unpack(data + p / kInterleaved * Format::kBytes, e);
    Store<Format::kHasMin>(e, at, p, unpacked);
  }
  StoreAny(type, data, p, k, unpacked);
}

using Formats = BlockFormats<Q8_0, Q2K, Q4K, Q5K, Q6K, Iq2Xxs, Mxfp4>;

}  // namespace

BlockDotKernels::Direct DirectVnni(BlockType type, int64_t k) {
  if (k % kInterleaved != 0) return nullptr;
  BlockDotKernels::Direct direct = nullptr;
  Formats::With(type, [&]<class Format>() { direct = &Rows<Format>; });
  return direct;
}

void UnpackBlockRowAvx512(BlockType type, const uint8_t* data, int64_t k, std::byte* unpacked) {
  const bool known =
      Formats::With(type, [&]<class Format>() { StoreRow<Format>(type, data, k, unpacked); });
  if (!known) StoreAny(type, data, 0, k, unpacked);
}

}  // namespace dsv4
