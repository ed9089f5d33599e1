// SPDX-License-Identifier: Apache-2.0
// UnpackBlockRow and LoadBlocks for processors with AVX-512, by intrinsics: the formats that most
// files have, to the same codes, scales and minima. Nothing here may run before block_dot.cc has
// asked the processor.
#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/block_dot.h"
#include "lib/tensor/block_grids.h"

namespace dsv4 {
namespace {

template <class T>
T Load(const uint8_t* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

__m256i Load32Bytes(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
void Store32(int8_t* q, __m256i codes) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), codes);
}

__m512 HalfToAll(const uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_set1_epi16(static_cast<int16_t>(Load<uint16_t>(p))));
}
__m512 FromBytes(__m128i bytes) { return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)); }

// Each of the lower eight lanes twice.
__m512 Twice(__m512 eight) {
  return _mm512_permutexvar_ps(_mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0),
                               eight);
}

// The functions below read 256 elements: `q` has their codes, `s` and `m` the scales and minima of
// each 16.

void Q8_0(const uint8_t* b, int8_t* q, float* s, float*) {
  constexpr int kBytes = 34;
  for (int i = 0; i < 8; ++i) Store32(q + 32 * i, Load32Bytes(b + kBytes * i + 2));
  const auto d = [&](int i) { return static_cast<int16_t>(Load<uint16_t>(b + kBytes * i)); };
  const __m128i scales = _mm_set_epi16(d(7), d(6), d(5), d(4), d(3), d(2), d(1), d(0));
  _mm512_storeu_ps(s, Twice(_mm512_cvtph_ps(_mm256_castsi128_si256(scales))));
}

void Q2K(const uint8_t* b, int8_t* q, float* s, float* m) {
  const __m128i both = _mm_loadu_si128(reinterpret_cast<const __m128i*>(b));
  const __m128i low = _mm_set1_epi8(15);
  _mm512_storeu_ps(s, _mm512_mul_ps(HalfToAll(b + 80), FromBytes(_mm_and_si128(both, low))));
  _mm512_storeu_ps(
      m, _mm512_mul_ps(HalfToAll(b + 82), FromBytes(_mm_and_si128(_mm_srli_epi16(both, 4), low))));
  const __m256i two = _mm256_set1_epi8(3);
  for (int half = 0; half < 2; ++half, q += 128) {
    const __m256i bits = Load32Bytes(b + 16 + 32 * half);
    Store32(q, _mm256_and_si256(bits, two));
    Store32(q + 32, _mm256_and_si256(_mm256_srli_epi16(bits, 2), two));
    Store32(q + 64, _mm256_and_si256(_mm256_srli_epi16(bits, 4), two));
    Store32(q + 96, _mm256_and_si256(_mm256_srli_epi16(bits, 6), two));
  }
}

// The 6-bit scales and minima of Q4_K and Q5_K.
void SixBitScales(const uint8_t* b, float* s, float* m) {
  const uint32_t low = Load<uint32_t>(b + 4), high = Load<uint32_t>(b + 8),
                 rest = Load<uint32_t>(b + 12);
  constexpr uint32_t kSix = 0x3f3f3f3fu, kFour = 0x0f0f0f0fu, kTwo = 0x03030303u;
  const uint64_t scales = (low & kSix) | uint64_t{(rest & kFour) | (low >> 6 & kTwo) << 4} << 32;
  const uint64_t mins = (high & kSix) | uint64_t{(rest >> 4 & kFour) | (high >> 6 & kTwo) << 4}
                                            << 32;
  const auto store = [](const uint8_t* factor, uint64_t bytes, float* to) {
    const __m512 values = FromBytes(_mm_cvtsi64_si128(static_cast<int64_t>(bytes)));
    _mm512_storeu_ps(to, Twice(_mm512_mul_ps(HalfToAll(factor), values)));
  };
  store(b, scales, s);
  store(b + 2, mins, m);
}

void Q4K(const uint8_t* b, int8_t* q, float* s, float* m) {
  SixBitScales(b, s, m);
  const __m256i low = _mm256_set1_epi8(15);
  for (int part = 0; part < 4; ++part, q += 64) {
    const __m256i bits = Load32Bytes(b + 16 + 32 * part);
    Store32(q, _mm256_and_si256(bits, low));
    Store32(q + 32, _mm256_and_si256(_mm256_srli_epi16(bits, 4), low));
  }
}

void Q5K(const uint8_t* b, int8_t* q, float* s, float* m) {
  SixBitScales(b, s, m);
  const __m256i low = _mm256_set1_epi8(15), fifth = _mm256_set1_epi8(16);
  const __m256i high = Load32Bytes(b + 16);
  for (int part = 0; part < 4; ++part, q += 64) {
    const __m256i bits = Load32Bytes(b + 48 + 32 * part);
    const auto with = [&](__m256i nibbles, int bit) {
      const __m256i set =
          _mm256_and_si256(_mm256_srl_epi16(high, _mm_cvtsi32_si128(bit)), _mm256_set1_epi8(1));
      const __m256i there = _mm256_cmpeq_epi8(set, _mm256_set1_epi8(1));
      return _mm256_or_si256(nibbles, _mm256_and_si256(there, fifth));
    };
    Store32(q, with(_mm256_and_si256(bits, low), 2 * part));
    Store32(q + 32, with(_mm256_and_si256(_mm256_srli_epi16(bits, 4), low), 2 * part + 1));
  }
}

void Q6K(const uint8_t* b, int8_t* q, float* s, float*) {
  const __m128i scales = _mm_loadu_si128(reinterpret_cast<const __m128i*>(b + 192));
  _mm512_storeu_ps(
      s, _mm512_mul_ps(HalfToAll(b + 208), _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(scales))));
  const __m256i low = _mm256_set1_epi8(15), two = _mm256_set1_epi8(0x30),
                offset = _mm256_set1_epi8(32);
  for (int half = 0; half < 2; ++half, q += 128) {
    const __m256i first = Load32Bytes(b + 64 * half), second = Load32Bytes(b + 64 * half + 32);
    const __m256i high = Load32Bytes(b + 128 + 32 * half);
    const auto join = [&](__m256i nibbles, __m256i bits) {
      return _mm256_sub_epi8(
          _mm256_or_si256(_mm256_and_si256(nibbles, low), _mm256_and_si256(bits, two)), offset);
    };
    Store32(q, join(first, _mm256_slli_epi16(high, 4)));
    Store32(q + 32, join(second, _mm256_slli_epi16(high, 2)));
    Store32(q + 64, join(_mm256_srli_epi16(first, 4), high));
    Store32(q + 96, join(_mm256_srli_epi16(second, 4), _mm256_srli_epi16(high, 2)));
  }
}

// Eight times 7 signs, with their parity as the eighth.
uint64_t WithParity(uint64_t signs) {
  const uint64_t seven = _pdep_u64(signs, 0x7f7f7f7f7f7f7f7fu);
  uint64_t parity = seven ^ seven >> 4;
  parity ^= parity >> 2;
  parity ^= parity >> 1;
  return seven | (parity & 0x0101010101010101u) << 7;
}

void Iq2Xxs(const uint8_t* b, int8_t* q, float* s, float*) {
  const uint8_t* const groups = b + 2;
  const __m512i words = _mm512_permutexvar_epi32(
      _mm512_set_epi32(15, 13, 11, 9, 7, 5, 3, 1, 15, 13, 11, 9, 7, 5, 3, 1),
      _mm512_loadu_si512(groups));
  const __m512 steps =
      _mm512_add_ps(_mm512_cvtepi32_ps(_mm512_srli_epi32(words, 28)), _mm512_set1_ps(0.5f));
  _mm512_storeu_ps(s,
                   Twice(_mm512_mul_ps(_mm512_mul_ps(HalfToAll(b), steps), _mm512_set1_ps(0.25f))));
  for (int i = 0; i < 4; ++i) {
    const uint8_t* const p = groups + 16 * i;
    const auto entry = [&](int l) {
      return Load<int64_t>(reinterpret_cast<const uint8_t*>(kIq2XxsGrid[p[l]].data()));
    };
    // Loads of their own: gathers take longer on most processors.
    const __m512i magnitudes = _mm512_set_epi64(entry(11), entry(10), entry(9), entry(8), entry(3),
                                                entry(2), entry(1), entry(0));
    constexpr uint32_t kSigns = (1u << 28) - 1;
    const uint64_t signs =
        (Load<uint32_t>(p + 4) & kSigns) | uint64_t{Load<uint32_t>(p + 12) & kSigns} << 28;
    _mm512_storeu_si512(q + 64 * i, _mm512_mask_sub_epi8(magnitudes, WithParity(signs),
                                                         _mm512_setzero_si512(), magnitudes));
  }
}

template <void (*Elements256)(const uint8_t*, int8_t*, float*, float*)>
void Each(BlockType type, const uint8_t* data, int64_t k, std::byte* unpacked) {
  constexpr int64_t kElements = 256, kRuns = kElements / kBlockRun;
  auto* const codes = reinterpret_cast<int8_t*>(unpacked);
  float* const scale = reinterpret_cast<float*>(unpacked + k);
  float* const min = scale + k / kBlockRun;
  const int64_t bytes = BlockBytes(type, kElements);
  int64_t i = 0;
  for (; (i + 1) * kElements <= k; ++i, data += bytes) {
    Elements256(data, codes + i * kElements, scale + i * kRuns, min + i * kRuns);
  }
  if (const int64_t rest = k - i * kElements; rest > 0) {
    UnpackBlocks(type, data, rest, codes + i * kElements, scale + i * kRuns, min + i * kRuns);
  }
}

}  // namespace

void UnpackBlockRowAvx512(BlockType type, const uint8_t* data, int64_t k, std::byte* unpacked) {
  switch (type) {
    case BlockType::kQ8_0:
      return Each<Q8_0>(type, data, k, unpacked);
    case BlockType::kQ2K:
      return Each<Q2K>(type, data, k, unpacked);
    case BlockType::kQ4K:
      return Each<Q4K>(type, data, k, unpacked);
    case BlockType::kQ5K:
      return Each<Q5K>(type, data, k, unpacked);
    case BlockType::kQ6K:
      return Each<Q6K>(type, data, k, unpacked);
    case BlockType::kIq2Xxs:
      return Each<Iq2Xxs>(type, data, k, unpacked);
    default:
      return UnpackBlockRow(type, data, k, unpacked);
  }
}

void LoadBlockRowAvx512(BlockType type, const uint8_t* data, int64_t k, float* values) {
  if (type != BlockType::kF16) return LoadBlocks(type, data, k, values);
  for (int64_t i = 0; i < k; i += 16) {
    _mm512_storeu_ps(values + i, _mm512_cvtph_ps(Load32Bytes(data + 2 * i)));
  }
}

}  // namespace dsv4
