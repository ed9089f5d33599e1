// SPDX-License-Identifier: Apache-2.0
// The products of weights in block formats by AVX2's integer instructions, also for processors with
// AVX-512 and without VNNI.
//
// Rows are interleaved: in each 128 elements a lane of 32 bits has four consecutive elements, and
// the four vectors that follow one another have the 16 elements of a run in one lane, so that its
// scale is applied once. The formats that most files have are unpacked in registers, to such rows
// in memory or, for few activation rows, into products of the same order of sums. Compiled with
// these instruction sets; nothing here may run before block_dot.cc has asked the processor.
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/cpu/block_dot.h"
#include "kernels/cpu/block_formats.h"
#include "lib/tensor/block_grids.h"
#include "lib/tensor/int8_run.h"

namespace dsv4 {
namespace {

constexpr int64_t kPiece = 128;  // elements that are interleaved
constexpr int kParts = 4;        // vectors of codes of a piece

// Where a row of k elements has the numbers of its elements from p on, a multiple of kPiece. Codes
// are at p, the others are 8 floats in the order of InterleavedRuns.
struct PieceRow {
  int64_t k;
  int64_t Scale(int64_t p) const { return k + p / 4; }
  // Of weights the minima, of activations the sums of codes times their scale.
  int64_t Min(int64_t p) const { return k + k / 4 + p / 4; }
};

template <class T>
T Load(const uint8_t* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}
__m128i Load16Bytes(const uint8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
__m256i Load32Bytes(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
void Store32Bytes(void* p, __m256i v) { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }
__m256 LoadFloats(const std::byte* p) { return _mm256_loadu_ps(reinterpret_cast<const float*>(p)); }
void StoreFloats(std::byte* p, __m256 v) { _mm256_storeu_ps(reinterpret_cast<float*>(p), v); }

// Four vectors of 32 consecutive elements each: then lane 4 l + i of vector t has elements 4 t to
// 4 t + 3 of run 2 i + l.
void Interleave(__m256i v[kParts]) {
  const __m256i a = _mm256_unpacklo_epi32(v[0], v[1]), b = _mm256_unpacklo_epi32(v[2], v[3]);
  const __m256i c = _mm256_unpackhi_epi32(v[0], v[1]), d = _mm256_unpackhi_epi32(v[2], v[3]);
  v[0] = _mm256_unpacklo_epi64(a, b);
  v[1] = _mm256_unpackhi_epi64(a, b);
  v[2] = _mm256_unpacklo_epi64(c, d);
  v[3] = _mm256_unpackhi_epi64(c, d);
}

// The numbers of 8 runs in the order of Interleave's lanes.
__m256 InterleavedRuns(__m256 v) {
  return _mm256_permutevar8x32_ps(v, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
}
// The same of 16 bytes, for the runs of two pieces.
__m128i InterleavedBytes(__m128i v) {
  return _mm_shuffle_epi8(v, _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15));
}
// The numbers of four times two runs in that order.
__m256 RunsOfPairs(__m128 four) { return _mm256_set_m128(four, four); }
// Pairs 0 to 3 and 4 to 7.
void RunsOfPairs(__m256 eight, __m256 runs[2]) {
  runs[0] = _mm256_permute2f128_ps(eight, eight, 0x00);
  runs[1] = _mm256_permute2f128_ps(eight, eight, 0x11);
}

// 16-bit sums of pairs of products. Unsigned codes are at most 31, so that four of their sums fit,
// too.
template <bool kUnsigned>
__m256i PairProducts(__m256i w, __m256i w_magnitude, __m256i x) {
  if constexpr (kUnsigned) return _mm256_maddubs_epi16(w, x);
  return _mm256_maddubs_epi16(w_magnitude, _mm256_sign_epi8(x, w));
}

// The sums of pairs in each lane.
__m256i LaneSums(__m256i pairs) { return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)); }

// The sums of the runs of a piece. Up to kAddable 16-bit sums of pairs can be added.
template <bool kUnsigned, int kAddable>
__m256i RunSums(const __m256i w[kParts], const std::byte* x) {
  __m256i sum = _mm256_setzero_si256(), pairs = sum;
  for (int part = 0; part < kParts; ++part) {
    const __m256i magnitude = kUnsigned ? w[part] : _mm256_abs_epi8(w[part]);
    const __m256i products =
        PairProducts<kUnsigned>(w[part], magnitude, Load32Bytes(x + 32 * part));
    pairs = part % kAddable == 0 ? products : _mm256_add_epi16(pairs, products);
    if (part % kAddable == kAddable - 1) {
      const __m256i lanes = LaneSums(pairs);
      sum = part < kAddable ? lanes : _mm256_add_epi32(sum, lanes);
    }
  }
  return sum;
}

float SumOfLanes(__m256 v) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// Adds the products of a piece to an f32 lane for each of its runs.
template <bool kHasMin>
__m256 AddRuns(__m256 acc, __m256i sums, __m256 w_scale, __m256 w_min, const std::byte* x,
               const PieceRow& at, int64_t p) {
  acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums),
                        _mm256_mul_ps(w_scale, LoadFloats(x + at.Scale(p))), acc);
  if constexpr (kHasMin) acc = _mm256_fnmadd_ps(w_min, LoadFloats(x + at.Min(p)), acc);
  return acc;
}

// ---- Unpacked rows. Codes of formats with minima are unsigned.

// kRows activation rows, which lie behind one another in memory, by a weight row.
template <int kRows, bool kHasMin>
void Tile(const std::byte* a, const std::byte* w, int64_t k, float* out, int64_t ld) {
  const PieceRow at{k};
  __m256 acc[kRows];
  for (__m256& sum : acc) sum = _mm256_setzero_ps();
  for (int64_t p = 0; p < k; p += kPiece) {
    __m256i v[kParts], magnitude[kParts];
    for (int part = 0; part < kParts; ++part) {
      v[part] = Load32Bytes(w + p + 32 * part);
      magnitude[part] = kHasMin ? v[part] : _mm256_abs_epi8(v[part]);
    }
    const __m256 scale = LoadFloats(w + at.Scale(p));
    const __m256 min = kHasMin ? LoadFloats(w + at.Min(p)) : _mm256_setzero_ps();
    for (int i = 0; i < kRows; ++i) {
      const std::byte* const row = a + i * PackedInt8Bytes(k);
      const auto pairs = [&](int part) {
        return PairProducts<kHasMin>(v[part], magnitude[part], Load32Bytes(row + p + 32 * part));
      };
      __m256i sums;
      if constexpr (kHasMin) {
        sums = LaneSums(_mm256_add_epi16(_mm256_add_epi16(pairs(0), pairs(1)),
                                         _mm256_add_epi16(pairs(2), pairs(3))));
      } else {
        sums = _mm256_add_epi32(_mm256_add_epi32(LaneSums(pairs(0)), LaneSums(pairs(1))),
                                _mm256_add_epi32(LaneSums(pairs(2)), LaneSums(pairs(3))));
      }
      acc[i] = AddRuns<kHasMin>(acc[i], sums, scale, min, row, at, p);
    }
  }
  for (int i = 0; i < kRows; ++i) out[i * ld] = SumOfLanes(acc[i]);
}

template <int kRows, bool kHasMin>
int64_t TileRows(const std::byte* a, int64_t m, const std::byte* w, int64_t k, float* out,
                 int64_t ld) {
  int64_t i = 0;
  for (; i + kRows <= m; i += kRows) {
    Tile<kRows, kHasMin>(a + i * PackedInt8Bytes(k), w, k, out + i * ld, ld);
  }
  return i;
}

template <bool kHasMin>
void DotUnpacked(const std::byte* a, int64_t m, const std::byte* w, int64_t n, int64_t k,
                 float* out, int64_t ld) {
  // As many rows as stay in registers beside the weights.
  constexpr int kRows = kHasMin ? 6 : 3;
  for (int64_t j = 0; j < n; ++j) {
    const std::byte* const row = w + j * UnpackedBlockBytes(k);
    int64_t i = TileRows<kRows, kHasMin>(a, m, row, k, out + j, ld);
    const auto rest = [&]<int kCount>() {
      i += TileRows<kCount, kHasMin>(a + i * PackedInt8Bytes(k), m - i, row, k, out + i * ld + j,
                                     ld);
    };
    if constexpr (kHasMin) rest.template operator()<3>();
    rest.template operator()<2>();
    rest.template operator()<1>();
  }
}

// ---- Weight rows as a file has them.

constexpr int64_t kBlockElements = 256;  // two pieces

// What 256 elements have for each run, in the order of InterleavedRuns.
struct RunNumbers {
  __m256 scale[2], min[2];
};

__m256 HalfToAll(const uint8_t* p) { return _mm256_cvtph_ps(_mm_set1_epi16(Load<int16_t>(p))); }

// A format has: kType; kHasMin; kUnsigned and kAddable of RunSums; kBytes of 256 elements; Runs;
// and Codes, the interleaved codes of one of the two pieces.
struct Q8_0 {
  static constexpr BlockType kType = BlockType::kQ8_0;
  static constexpr bool kHasMin = false, kUnsigned = false;
  static constexpr int kAddable = 1;
  static constexpr int64_t kBytes = 8 * 34;
  static void Runs(const uint8_t* b, RunNumbers& runs) {
    for (int piece = 0; piece < 2; ++piece) {
      const auto d = [&](int i) { return Load<int16_t>(b + 34 * (4 * piece + i)); };
      runs.scale[piece] =
          RunsOfPairs(_mm_cvtph_ps(_mm_setr_epi16(d(0), d(1), d(2), d(3), 0, 0, 0, 0)));
    }
  }
  static void Codes(const uint8_t* b, int piece, __m256i codes[kParts]) {
    for (int part = 0; part < kParts; ++part) {
      codes[part] = Load32Bytes(b + 34 * (4 * piece + part) + 2);
    }
    Interleave(codes);
  }
};

struct Q2K {
  static constexpr BlockType kType = BlockType::kQ2K;
  static constexpr bool kHasMin = true, kUnsigned = true;
  static constexpr int kAddable = 4;
  static constexpr int64_t kBytes = 84;
  static void Runs(const uint8_t* b, RunNumbers& runs) {
    const __m128i both = InterleavedBytes(Load16Bytes(b)), low = _mm_set1_epi8(15);
    const __m128i scales = _mm_and_si128(both, low);
    const __m128i mins = _mm_and_si128(_mm_srli_epi16(both, 4), low);
    const auto floats = [](__m128i bytes) {
      return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
    };
    const __m256 d = HalfToAll(b + 80), d_min = HalfToAll(b + 82);
    runs.scale[0] = _mm256_mul_ps(d, floats(scales));
    runs.scale[1] = _mm256_mul_ps(d, floats(_mm_srli_si128(scales, 8)));
    runs.min[0] = _mm256_mul_ps(d_min, floats(mins));
    runs.min[1] = _mm256_mul_ps(d_min, floats(_mm_srli_si128(mins, 8)));
  }
  static void Codes(const uint8_t* b, int piece, __m256i codes[kParts]) {
    const __m256i bits = Load32Bytes(b + 16 + 32 * piece), two = _mm256_set1_epi8(3);
    codes[0] = _mm256_and_si256(bits, two);
    codes[1] = _mm256_and_si256(_mm256_srli_epi16(bits, 2), two);
    codes[2] = _mm256_and_si256(_mm256_srli_epi16(bits, 4), two);
    codes[3] = _mm256_and_si256(_mm256_srli_epi16(bits, 6), two);
    Interleave(codes);
  }
};

// Scales and minima of Q4_K and Q5_K: of each four 6-bit numbers the last four have their upper two
// bits with the first.
void SixBitScales(const uint8_t* b, RunNumbers& runs) {
  // b + 4: scales 0 to 3, minima 0 to 3, lower nibbles of scales and upper ones of minima 4 to 7.
  const __m128i words = Load16Bytes(b);
  const __m128i first = _mm_and_si128(
      _mm_srlv_epi32(_mm_shuffle_epi32(words, _MM_SHUFFLE(3, 2, 3, 1)), _mm_setr_epi32(0, 0, 0, 4)),
      _mm_setr_epi32(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f));
  const __m128i upper =
      _mm_and_si128(_mm_srli_epi32(_mm_shuffle_epi32(words, _MM_SHUFFLE(2, 2, 1, 1)), 2),
                    _mm_setr_epi32(0, 0x30303030, 0, 0x30303030));
  const __m128i all = _mm_or_si128(first, upper);
  const auto floats = [](__m128i bytes) { return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)); };
  RunsOfPairs(_mm256_mul_ps(HalfToAll(b), floats(all)), runs.scale);
  RunsOfPairs(_mm256_mul_ps(HalfToAll(b + 2), floats(_mm_srli_si128(all, 8))), runs.min);
}

// Two vectors of the lower and the upper four bits of bytes.
void Nibbles(__m256i bytes, __m256i codes[2]) {
  const __m256i low = _mm256_set1_epi8(15);
  codes[0] = _mm256_and_si256(bytes, low);
  codes[1] = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), low);
}

struct Q4K {
  static constexpr BlockType kType = BlockType::kQ4K;
  static constexpr bool kHasMin = true, kUnsigned = true;
  static constexpr int kAddable = 4;
  static constexpr int64_t kBytes = 144;
  static void Runs(const uint8_t* b, RunNumbers& runs) { SixBitScales(b, runs); }
  static void Codes(const uint8_t* b, int piece, __m256i codes[kParts]) {
    Nibbles(Load32Bytes(b + 16 + 64 * piece), codes);
    Nibbles(Load32Bytes(b + 48 + 64 * piece), codes + 2);
    Interleave(codes);
  }
};

struct Q5K {
  static constexpr BlockType kType = BlockType::kQ5K;
  static constexpr bool kHasMin = true, kUnsigned = true;
  static constexpr int kAddable = 4;
  static constexpr int64_t kBytes = 176;
  static void Runs(const uint8_t* b, RunNumbers& runs) { SixBitScales(b, runs); }
  static void Codes(const uint8_t* b, int piece, __m256i codes[kParts]) {
    Nibbles(Load32Bytes(b + 48 + 64 * piece), codes);
    Nibbles(Load32Bytes(b + 80 + 64 * piece), codes + 2);
    const __m256i bits = Load32Bytes(b + 16), fifth = _mm256_set1_epi8(16);
    const __m256i high = piece == 0 ? bits : _mm256_srli_epi16(bits, 4);
    const auto add = [&](__m256i& code, __m256i shifted) {
      code = _mm256_or_si256(code, _mm256_and_si256(shifted, fifth));
    };
    add(codes[0], _mm256_slli_epi16(high, 4));
    add(codes[1], _mm256_slli_epi16(high, 3));
    add(codes[2], _mm256_slli_epi16(high, 2));
    add(codes[3], _mm256_slli_epi16(high, 1));
    Interleave(codes);
  }
};

struct Q6K {
  static constexpr BlockType kType = BlockType::kQ6K;
  static constexpr bool kHasMin = false, kUnsigned = false;
  static constexpr int kAddable = 4;  // codes from -32 on
  static constexpr int64_t kBytes = 210;
  static void Runs(const uint8_t* b, RunNumbers& runs) {
    const __m128i scales = InterleavedBytes(Load16Bytes(b + 192));
    const __m256 d = HalfToAll(b + 208);
    const auto floats = [](__m128i v) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v)); };
    runs.scale[0] = _mm256_mul_ps(d, floats(scales));
    runs.scale[1] = _mm256_mul_ps(d, floats(_mm_srli_si128(scales, 8)));
  }
  static void Codes(const uint8_t* b, int piece, __m256i codes[kParts]) {
    __m256i nibbles[kParts];
    Nibbles(Load32Bytes(b + 64 * piece), nibbles);
    Nibbles(Load32Bytes(b + 64 * piece + 32), nibbles + 2);
    const __m256i high = Load32Bytes(b + 128 + 32 * piece);
    const auto join = [](__m256i four, __m256i bits) {
      const __m256i two = _mm256_and_si256(bits, _mm256_set1_epi8(0x30));
      return _mm256_sub_epi8(_mm256_or_si256(four, two), _mm256_set1_epi8(32));
    };
    codes[0] = join(nibbles[0], _mm256_slli_epi16(high, 4));
    codes[1] = join(nibbles[2], _mm256_slli_epi16(high, 2));
    codes[2] = join(nibbles[1], high);
    codes[3] = join(nibbles[3], _mm256_srli_epi16(high, 2));
    Interleave(codes);
  }
};

// 8 signs from 7 bits, with their parity as the eighth, as bytes 1 and -1.
alignas(64) constexpr std::array<uint64_t, 128> kIq2Signs = [] {
  std::array<uint64_t, 128> table{};
  for (unsigned bits = 0; bits < 128; ++bits) {
    unsigned parity = 0;
    for (unsigned i = 0; i < 7; ++i) parity ^= bits >> i & 1;
    const unsigned all = bits | parity << 7;
    for (unsigned i = 0; i < 8; ++i) {
      table[bits] |= uint64_t{(all >> i & 1) != 0 ? 0xffu : 1u} << (8 * i);
    }
  }
  return table;
}();
alignas(64) constexpr std::array<uint64_t, 256> kIq2XxsMagnitudes = [] {
  const BlockGrid<256, 8> grid = grids::Expand<256, 8>(grids::kIq2XxsPacked, grids::kIq2Levels);
  std::array<uint64_t, 256> words{};
  for (size_t entry = 0; entry < words.size(); ++entry) {
    for (size_t i = 0; i < 8; ++i) {
      words[entry] |= static_cast<uint64_t>(static_cast<uint8_t>(grid[entry][i])) << (8 * i);
    }
  }
  return words;
}();

struct Iq2Xxs {
  static constexpr BlockType kType = BlockType::kIq2Xxs;
  static constexpr bool kHasMin = false, kUnsigned = false;
  static constexpr int kAddable = 2;  // magnitudes up to 43
  static constexpr int64_t kBytes = 66;
  static void Runs(const uint8_t* b, RunNumbers& runs) {
    const __m256 first = _mm256_castsi256_ps(Load32Bytes(b + 2));
    const __m256 second = _mm256_castsi256_ps(Load32Bytes(b + 34));
    // The second word of each 8 bytes: groups 0, 1, 4, 5, 2, 3, 6, 7.
    const __m256i words = _mm256_permute4x64_epi64(
        _mm256_castps_si256(_mm256_shuffle_ps(first, second, _MM_SHUFFLE(3, 1, 3, 1))),
        _MM_SHUFFLE(3, 1, 2, 0));
    const __m256 steps =
        _mm256_add_ps(_mm256_cvtepi32_ps(_mm256_srli_epi32(words, 28)), _mm256_set1_ps(0.5f));
    RunsOfPairs(_mm256_mul_ps(_mm256_mul_ps(HalfToAll(b), steps), _mm256_set1_ps(0.25f)),
                runs.scale);
  }
  static void Codes(const uint8_t* b, int piece, __m256i codes[kParts]) {
    uint32_t indices[4], words[4];
    for (int group = 0; group < 4; ++group) {
      const uint64_t both = Load<uint64_t>(b + 2 + 32 * piece + 8 * group);
      indices[group] = static_cast<uint32_t>(both);
      words[group] = static_cast<uint32_t>(both >> 32);
    }
    const auto magnitudes = [&](int run, int entry) {
      return static_cast<int64_t>(
          kIq2XxsMagnitudes[indices[run / 2] >> (16 * (run % 2) + 8 * entry) & 255]);
    };
    const auto signs = [&](int run, int entry) {
      return static_cast<int64_t>(kIq2Signs[words[run / 2] >> (14 * (run % 2) + 7 * entry) & 127]);
    };
    // Of four runs the first or the second 8 elements.
    const auto elements = [&](int entry, int r0, int r1, int r2, int r3) {
      return _mm256_castsi256_ps(
          _mm256_sign_epi8(_mm256_setr_epi64x(magnitudes(r0, entry), magnitudes(r1, entry),
                                              magnitudes(r2, entry), magnitudes(r3, entry)),
                           _mm256_setr_epi64x(signs(r0, entry), signs(r1, entry), signs(r2, entry),
                                              signs(r3, entry))));
    };
    for (int entry = 0; entry < 2; ++entry) {
      const __m256 a = elements(entry, 0, 2, 1, 3), c = elements(entry, 4, 6, 5, 7);
      codes[2 * entry] = _mm256_castps_si256(_mm256_shuffle_ps(a, c, _MM_SHUFFLE(2, 0, 2, 0)));
      codes[2 * entry + 1] = _mm256_castps_si256(_mm256_shuffle_ps(a, c, _MM_SHUFFLE(3, 1, 3, 1)));
    }
  }
};

struct Mxfp4 {
  static constexpr BlockType kType = BlockType::kMxfp4;
  static constexpr bool kHasMin = false, kUnsigned = false;
  static constexpr int kAddable = 4;  // codes up to 12
  static constexpr int64_t kBytes = 8 * 17;
  static void Runs(const uint8_t* b, RunNumbers& runs) {
    for (int piece = 0; piece < 2; ++piece) {
      const auto e = [&](int i) { return int{b[17 * (4 * piece + i)]}; };
      // 2^(exponent - 128), of which the two smallest are subnormal numbers and 255 is NaN.
      const __m128i exponent = _mm_setr_epi32(e(0), e(1), e(2), e(3));
      const __m128i normal = _mm_slli_epi32(_mm_sub_epi32(exponent, _mm_set1_epi32(1)), 23);
      const __m128i finite =
          _mm_blendv_epi8(normal, _mm_sllv_epi32(_mm_set1_epi32(0x200000), exponent),
                          _mm_cmplt_epi32(exponent, _mm_set1_epi32(2)));
      const __m128i bits = _mm_blendv_epi8(finite, _mm_set1_epi32(0x7fc00000),
                                           _mm_cmpeq_epi32(exponent, _mm_set1_epi32(255)));
      runs.scale[piece] = RunsOfPairs(_mm_castsi128_ps(bits));
    }
  }
  static void Codes(const uint8_t* b, int piece, __m256i codes[kParts]) {
    // e2m1 doubled; code 8 is 0.
    const __m256i table = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12));
    for (int part = 0; part < kParts; ++part) {
      const __m128i bytes = Load16Bytes(b + 17 * (4 * piece + part) + 1);
      const __m256i nibbles = _mm256_set_m128i(_mm_srli_epi16(bytes, 4), bytes);
      codes[part] = _mm256_shuffle_epi8(table, _mm256_and_si256(nibbles, _mm256_set1_epi8(15)));
    }
    Interleave(codes);
  }
};

// The sums of kRows activation rows with a weight row.
template <class Format, int kRows>
struct Sums {
  __m256 acc[kRows];

  Sums() {
    for (int i = 0; i < kRows; ++i) acc[i] = _mm256_setzero_ps();
  }

  // Adds the products of 256 elements from p on, which lie at `b`, and of packed rows `a`.
  void Add(const uint8_t* b, const std::byte* a, int64_t k, int64_t p) {
    RunNumbers runs;
    Format::Runs(b, runs);
    for (int piece = 0; piece < 2; ++piece, p += kPiece) {
      __m256i codes[kParts];
      Format::Codes(b, piece, codes);
      for (int i = 0; i < kRows; ++i) {
        const std::byte* const row = a + i * PackedInt8Bytes(k);
        acc[i] = AddRuns<Format::kHasMin>(
            acc[i], RunSums<Format::kUnsigned, Format::kAddable>(codes, row + p), runs.scale[piece],
            Format::kHasMin ? runs.min[piece] : _mm256_setzero_ps(), row, PieceRow{k}, p);
      }
    }
  }

  void Store(float* out, int64_t ld) const {
    for (int i = 0; i < kRows; ++i) out[i * ld] = SumOfLanes(acc[i]);
  }
};

// Weight rows [0, n) by kRows activation rows, which lie behind one another in memory.
template <class Format, int kRows>
void Dot(const std::byte* a, const uint8_t* w, int64_t n, int64_t k, float* out, int64_t ld) {
  constexpr int64_t kAheadBytes = 4096;  // of prefetches
  for (int64_t j = 0; j < n; ++j) {
    Sums<Format, kRows> sums;
    for (int64_t p = 0; p < k; p += kBlockElements, w += Format::kBytes) {
      for (int64_t i = 0; i < Format::kBytes; i += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(w + kAheadBytes + i), _MM_HINT_T0);
      }
      sums.Add(w, a, k, p);
    }
    sums.Store(out + j, ld);
  }
}

template <class Format>
void Direct(const std::byte* a, int64_t m, const uint8_t* w, int64_t n, int64_t k, float* out,
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

// Elements [p, k) of a row at `data`.
void StoreAny(BlockType type, const uint8_t* data, int64_t p, int64_t k, std::byte* unpacked) {
  constexpr int64_t kAtOnce = 2048;
  alignas(32) int8_t natural[kAtOnce];
  alignas(32) float scale[kAtOnce / kBlockRun], min[kAtOnce / kBlockRun] = {};
  const PieceRow at{k};
  for (; p < k; p += kAtOnce) {
    const int64_t count = std::min(kAtOnce, k - p);
    UnpackBlocks(type, data + BlockBytes(type, p), count, natural, scale, min);
    for (int64_t i = 0; i < count; i += kPiece) {
      __m256i codes[kParts];
      for (int part = 0; part < kParts; ++part) codes[part] = Load32Bytes(natural + i + 32 * part);
      Interleave(codes);
      for (int part = 0; part < kParts; ++part) {
        Store32Bytes(unpacked + p + i + 32 * part, codes[part]);
      }
      const auto runs = [&](const float* numbers) {
        return InterleavedRuns(_mm256_load_ps(numbers + i / kBlockRun));
      };
      StoreFloats(unpacked + at.Scale(p + i), runs(scale));
      StoreFloats(unpacked + at.Min(p + i), runs(min));
    }
  }
}

template <class Format>
void StoreRow(BlockType type, const uint8_t* data, int64_t k, std::byte* unpacked) {
  const PieceRow at{k};
  int64_t p = 0;
  for (; p + kBlockElements <= k; p += kBlockElements) {
    const uint8_t* const b = data + p / kBlockElements * Format::kBytes;
    RunNumbers runs;
    Format::Runs(b, runs);
    for (int piece = 0; piece < 2; ++piece) {
      const int64_t begin = p + kPiece * piece;
      __m256i codes[kParts];
      Format::Codes(b, piece, codes);
      for (int part = 0; part < kParts; ++part) {
        Store32Bytes(unpacked + begin + 32 * part, codes[part]);
      }
      StoreFloats(unpacked + at.Scale(begin), runs.scale[piece]);
      if constexpr (Format::kHasMin) StoreFloats(unpacked + at.Min(begin), runs.min[piece]);
    }
  }
  StoreAny(type, data, p, k, unpacked);
}

// Eight bf16 as f32.
__m256 LoadBf16(const uint16_t* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

float LargestOfLanes(__m256 v) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

using Formats = BlockFormats<Q8_0, Q2K, Q4K, Q5K, Q6K, Iq2Xxs, Mxfp4>;

}  // namespace

void PackInt8Avx2(const uint16_t* x, int64_t k, std::byte* packed) {
  constexpr int kVectors = kInt8Run / 8;
  const PieceRow at{k};
  const __m256 sign = _mm256_set1_ps(-0.f);
  for (int64_t p = 0; p < k; p += kPiece) {
    __m256i codes[kParts];
    alignas(16) float scales[kParts];  // of two runs each
    for (int part = 0; part < kParts; ++part) {
      __m256 v[kVectors], largest = _mm256_setzero_ps();
      for (int i = 0; i < kVectors; ++i) {
        v[i] = LoadBf16(x + p + kInt8Run * part + 8 * i);
        largest = _mm256_max_ps(largest, _mm256_andnot_ps(sign, v[i]));
      }
      const Int8Scale scale(LargestOfLanes(largest));
      scales[part] = scale.scale;
      const __m256 inverse = _mm256_set1_ps(scale.inverse);
      const auto code = [&](int i) { return _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse)); };
      const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(code(0), code(1)),
                                               _mm256_packs_epi32(code(2), code(3)));
      codes[part] = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    }
    Interleave(codes);
    __m256i sum = _mm256_setzero_si256();
    for (int part = 0; part < kParts; ++part) {
      Store32Bytes(packed + p + 32 * part, codes[part]);
      sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(_mm256_set1_epi8(1), codes[part]));
    }
    const __m256 scale = RunsOfPairs(_mm_load_ps(scales));
    StoreFloats(packed + at.Scale(p), scale);
    StoreFloats(packed + at.Min(p), _mm256_mul_ps(scale, _mm256_cvtepi32_ps(LaneSums(sum))));
  }
}

void DotInt8Avx2(const std::byte* a, int64_t m, const std::byte* w, int64_t n, int64_t k,
                 bool has_min, float* out, int64_t ld) {
  has_min ? DotUnpacked<true>(a, m, w, n, k, out, ld) : DotUnpacked<false>(a, m, w, n, k, out, ld);
}

BlockDotKernels::Direct DirectAvx2(BlockType type, int64_t k) {
  if (k % kBlockElements != 0) return nullptr;
  BlockDotKernels::Direct direct = nullptr;
  Formats::With(type, [&]<class Format>() { direct = &Direct<Format>; });
  return direct;
}

void UnpackBlockRowAvx2(BlockType type, const uint8_t* data, int64_t k, std::byte* unpacked) {
  const bool known =
      Formats::With(type, [&]<class Format>() { StoreRow<Format>(type, data, k, unpacked); });
  if (!known) StoreAny(type, data, 0, k, unpacked);
}

}  // namespace dsv4
