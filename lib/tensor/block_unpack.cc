// SPDX-License-Identifier: Apache-2.0
// Codes, scales and minima of each quantised block format. Every function below reads one block:
// `q` has its codes, `s` and `m` a scale and a minimum for each 16 of them.
#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#include "lib/tensor/block_format.h"
#include "lib/tensor/block_grids.h"
#include "lib/tensor/dtype.h"
#include "lib/tensor/quant_format.h"

namespace dsv4 {
namespace {

constexpr int8_t kIq4Table[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};
// e2m1 doubled. Code 8 is 0, as in ggml.
constexpr int8_t kE2M1Table[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

uint16_t Load16(const uint8_t* p) {
  uint16_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

uint32_t Load32(const uint8_t* p) {
  uint32_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

float LoadF16(const uint8_t* p) { return F16ToFloat(Load16(p)); }

void SetTwo(float value, float* at) { at[0] = at[1] = value; }

// For each 8 signs: a word with the bytes all ones where their bits are set.
constexpr std::array<uint64_t, 256> kSignMasks = [] {
  std::array<uint64_t, 256> masks{};
  for (size_t signs = 0; signs < 256; ++signs) {
    for (size_t i = 0; i < 8; ++i) masks[signs] |= uint64_t{(signs >> i & 1) * 0xff} << (8 * i);
  }
  return masks;
}();
// Masks of 7 signs, whose parity is the eighth.
constexpr std::array<uint64_t, 128> kParityMasks = [] {
  std::array<uint64_t, 128> masks{};
  for (size_t signs = 0; signs < 128; ++signs) {
    masks[signs] = kSignMasks[signs | static_cast<size_t>(std::popcount(signs) & 1) << 7];
  }
  return masks;
}();

// Stores 8 magnitudes, none of them 0, under their signs.
void StoreSigned(uint64_t magnitudes, uint64_t mask, int8_t* q) {
  const uint64_t value = (magnitudes ^ mask) + (mask & 0x0101010101010101u);
  std::memcpy(q, &value, sizeof value);
}

uint64_t Entry8(const std::array<int8_t, 8>& entry) {
  uint64_t word;
  std::memcpy(&word, entry.data(), sizeof word);
  return word;
}

uint64_t Entries4(const std::array<int8_t, 4>& first, const std::array<int8_t, 4>& second) {
  uint32_t low, high;
  std::memcpy(&low, first.data(), sizeof low);
  std::memcpy(&high, second.data(), sizeof high);
  if constexpr (std::endian::native == std::endian::little) return low | uint64_t{high} << 32;
  return high | uint64_t{low} << 32;
}
static_assert(std::endian::native == std::endian::little, "words of a file are read as they are");

// Bytes with two nibbles: the low ones first, then the high ones.
template <int kBytes>
void Nibbles(const uint8_t* p, const int8_t* table, int8_t* q) {
#if defined(__ARM_NEON) && defined(__aarch64__)
  if constexpr (kBytes == 16) {
    const int8x16_t values = vld1q_s8(table);
    const uint8x16_t bytes = vld1q_u8(p);
    vst1q_s8(q, vqtbl1q_s8(values, vandq_u8(bytes, vdupq_n_u8(15))));
    vst1q_s8(q + 16, vqtbl1q_s8(values, vshrq_n_u8(bytes, 4)));
    return;
  }
#endif
  for (int j = 0; j < kBytes; ++j) {
    q[j] = table[p[j] & 15];
    q[j + kBytes] = table[p[j] >> 4];
  }
}

#if defined(__x86_64__)
// Nibbles<16> by a shuffle of bytes.
[[gnu::target("ssse3")]] inline void ShuffledNibbles(const uint8_t* p, const int8_t* table,
                                                     int8_t* q) {
  const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m128i low = _mm_set1_epi8(15);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(q),
                   _mm_shuffle_epi8(values, _mm_and_si128(bytes, low)));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 16),
                   _mm_shuffle_epi8(values, _mm_and_si128(_mm_srli_epi16(bytes, 4), low)));
}
#endif

template <int kOffset>
void Nibbles32(const uint8_t* p, int8_t* q) {
  for (int j = 0; j < 16; ++j) {
    q[j] = static_cast<int8_t>((p[j] & 15) - kOffset);
    q[j + 16] = static_cast<int8_t>((p[j] >> 4) - kOffset);
  }
}

void AddFifthBits(const uint8_t* p, int8_t* q) {
  const uint32_t high = Load32(p);
  for (int j = 0; j < 32; ++j) q[j] = static_cast<int8_t>(q[j] + (high >> j & 1) * 16);
}

void Q4_0(const uint8_t* b, int8_t* q, float* s, float*) {
  SetTwo(LoadF16(b), s);
  Nibbles32<8>(b + 2, q);
}

void Q4_1(const uint8_t* b, int8_t* q, float* s, float* m) {
  SetTwo(LoadF16(b), s);
  SetTwo(-LoadF16(b + 2), m);
  Nibbles32<0>(b + 4, q);
}

void Q5_0(const uint8_t* b, int8_t* q, float* s, float*) {
  SetTwo(LoadF16(b), s);
  Nibbles32<16>(b + 6, q);
  AddFifthBits(b + 2, q);
}

void Q5_1(const uint8_t* b, int8_t* q, float* s, float* m) {
  SetTwo(LoadF16(b), s);
  SetTwo(-LoadF16(b + 2), m);
  Nibbles32<0>(b + 8, q);
  AddFifthBits(b + 4, q);
}

void Q8_0(const uint8_t* b, int8_t* q, float* s, float*) {
  SetTwo(LoadF16(b), s);
  std::memcpy(q, b + 2, 32);
}

// Half the scale, since codes are doubled: byte 0 is 2^-128, a subnormal number. 255 is NaN.
float Mxfp4Scale(uint8_t byte) {
  return byte == 255 ? std::bit_cast<float>(0x7fc00000u) : E8M0ToFloat(byte) * 0.5f;
}

void Mxfp4(const uint8_t* b, int8_t* q, float* s, float*) {
  SetTwo(Mxfp4Scale(b[0]), s);
  Nibbles<16>(b + 1, kE2M1Table, q);
}

#if defined(__x86_64__)
// Unpacks `blocks` blocks of MXFP4.
[[gnu::target("ssse3")]] void ShuffledMxfp4(const uint8_t* b, int64_t blocks, int8_t* q, float* s) {
  for (int64_t i = 0; i < blocks; ++i, b += 17, q += 32, s += 2) {
    SetTwo(Mxfp4Scale(b[0]), s);
    ShuffledNibbles(b + 1, kE2M1Table, q);
  }
}
#endif

void Nvfp4(const uint8_t* b, int8_t* q, float* s, float*) {
  for (int run = 0; run < 4; ++run) {
    // Unsigned e4m3 without NaN: 0x7f is 0, and the highest exponent has a mantissa of 7, too.
    const int exponent = b[run] >> 3 & 15, mantissa = b[run] & 7;
    const float magnitude = exponent == 0 ? static_cast<float>(mantissa) * 0x1p-9f
                                          : static_cast<float>(8 + mantissa) *
                                                std::bit_cast<float>((117u + exponent) << 23);
    s[run] = b[run] == 0x7f ? 0 : magnitude * 0.5f;
    Nibbles<8>(b + 4 + 8 * run, kE2M1Table, q + 16 * run);
  }
}

void Iq4Nl(const uint8_t* b, int8_t* q, float* s, float*) {
  SetTwo(LoadF16(b), s);
  Nibbles<16>(b + 2, kIq4Table, q);
}

void Iq4Xs(const uint8_t* b, int8_t* q, float* s, float*) {
  const float d = LoadF16(b);
  const uint32_t high = Load16(b + 2);
  for (int i = 0; i < 8; ++i) {
    const int low = b[4 + i / 2] >> (i % 2 * 4) & 15;
    const int scale = low | static_cast<int>(high >> (2 * i) & 3) << 4;
    SetTwo(d * static_cast<float>(scale - 32), s + 2 * i);
    Nibbles<16>(b + 8 + 16 * i, kIq4Table, q + 32 * i);
  }
}

// Two bits of 128 elements from 32 bytes.
void TwoBits(const uint8_t* p, int8_t* q) {
  for (int shift = 0; shift < 4; ++shift) {
    for (int j = 0; j < 32; ++j) q[32 * shift + j] = static_cast<int8_t>(p[j] >> (2 * shift) & 3);
  }
}

void Q2K(const uint8_t* b, int8_t* q, float* s, float* m) {
  const float d = LoadF16(b + 80), dmin = LoadF16(b + 82);
  for (int g = 0; g < 16; ++g) {
    s[g] = d * static_cast<float>(b[g] & 15);
    m[g] = dmin * static_cast<float>(b[g] >> 4);
  }
  TwoBits(b + 16, q);
  TwoBits(b + 48, q + 128);
}

void Q3K(const uint8_t* b, int8_t* q, float* s, float*) {
  const uint8_t* scales = b + 96;
  const float d = LoadF16(b + 108);
  for (int g = 0; g < 16; ++g) {
    const int low = g < 8 ? scales[g] & 15 : scales[g - 8] >> 4;
    const int high = scales[8 + g % 4] >> (2 * (g / 4)) & 3;
    s[g] = d * static_cast<float>((low | high << 4) - 32);
  }
  TwoBits(b + 32, q);
  TwoBits(b + 64, q + 128);
  for (int part = 0; part < 8; ++part) {
    for (int j = 0; j < 32; ++j) {
      q[32 * part + j] = static_cast<int8_t>(q[32 * part + j] - ((b[j] >> part & 1) != 0 ? 0 : 4));
    }
  }
}

// The 6-bit scales and minima of Q4_K and Q5_K; the block begins with d and dmin.
void SixBitScales(const uint8_t* b, float* s, float* m) {
  const float d = LoadF16(b), dmin = LoadF16(b + 2);
  const uint8_t* p = b + 4;
  for (int i = 0; i < 8; ++i) {
    const int scale = i < 4 ? p[i] & 63 : (p[i + 4] & 15) | p[i - 4] >> 6 << 4;
    const int min = i < 4 ? p[i + 4] & 63 : p[i + 4] >> 4 | p[i] >> 6 << 4;
    SetTwo(d * static_cast<float>(scale), s + 2 * i);
    SetTwo(dmin * static_cast<float>(min), m + 2 * i);
  }
}

void NibblesOf64(const uint8_t* p, int8_t* q) {
  for (int part = 0; part < 4; ++part) {
    for (int j = 0; j < 32; ++j) {
      q[64 * part + j] = static_cast<int8_t>(p[32 * part + j] & 15);
      q[64 * part + 32 + j] = static_cast<int8_t>(p[32 * part + j] >> 4);
    }
  }
}

void Q4K(const uint8_t* b, int8_t* q, float* s, float* m) {
  SixBitScales(b, s, m);
  NibblesOf64(b + 16, q);
}

void Q5K(const uint8_t* b, int8_t* q, float* s, float* m) {
  SixBitScales(b, s, m);
  NibblesOf64(b + 48, q);
  for (int part = 0; part < 8; ++part) {
    for (int j = 0; j < 32; ++j) {
      q[32 * part + j] = static_cast<int8_t>(q[32 * part + j] + (b[16 + j] >> part & 1) * 16);
    }
  }
}

void Q6K(const uint8_t* b, int8_t* q, float* s, float*) {
  const float d = LoadF16(b + 208);
  for (int g = 0; g < 16; ++g) s[g] = d * static_cast<float>(static_cast<int8_t>(b[192 + g]));
  for (int half = 0; half < 2; ++half) {
    const uint8_t *low = b + 64 * half, *high = b + 128 + 32 * half;
    int8_t* const out = q + 128 * half;
    for (int l = 0; l < 32; ++l) {
      out[l] = static_cast<int8_t>(((low[l] & 15) | (high[l] & 3) << 4) - 32);
      out[l + 32] = static_cast<int8_t>(((low[l + 32] & 15) | (high[l] >> 2 & 3) << 4) - 32);
      out[l + 64] = static_cast<int8_t>((low[l] >> 4 | (high[l] >> 4 & 3) << 4) - 32);
      out[l + 96] = static_cast<int8_t>((low[l + 32] >> 4 | high[l] >> 6 << 4) - 32);
    }
  }
}

float Iq2Scale(float d, uint32_t s) { return d * (static_cast<float>(s) + 0.5f) / 4; }

// A nibble of a byte for each 16 elements, the low one first.
void Iq2Scales(float d, const uint8_t* p, float* s) {
  for (int i = 0; i < 8; ++i) {
    s[2 * i] = Iq2Scale(d, p[i] & 15);
    s[2 * i + 1] = Iq2Scale(d, p[i] >> 4);
  }
}

void Iq2Xxs(const uint8_t* b, int8_t* q, float* s, float*) {
  const float d = LoadF16(b);
  for (int i = 0; i < 8; ++i) {
    const uint8_t* p = b + 2 + 8 * i;
    const uint32_t word = Load32(p + 4);
    SetTwo(Iq2Scale(d, word >> 28), s + 2 * i);
    for (int l = 0; l < 4; ++l) {
      StoreSigned(Entry8(kIq2XxsGrid[p[l]]), kParityMasks[word >> (7 * l) & 127],
                  q + 32 * i + 8 * l);
    }
  }
}

void Iq2Xs(const uint8_t* b, int8_t* q, float* s, float*) {
  Iq2Scales(LoadF16(b), b + 66, s);
  for (int l = 0; l < 32; ++l) {
    const uint32_t word = Load16(b + 2 + 2 * l);
    StoreSigned(Entry8(kIq2XsGrid[word & 511]), kParityMasks[word >> 9], q + 8 * l);
  }
}

void Iq2S(const uint8_t* b, int8_t* q, float* s, float*) {
  Iq2Scales(LoadF16(b), b + 74, s);
  for (int l = 0; l < 32; ++l) {
    const uint32_t high = b[66 + l / 4] >> (2 * (l % 4)) & 3;
    StoreSigned(Entry8(kIq2SGrid[b[2 + l] | high << 8]), kSignMasks[b[34 + l]], q + 8 * l);
  }
}

void Iq3Xxs(const uint8_t* b, int8_t* q, float* s, float*) {
  const float d = LoadF16(b);
  for (int i = 0; i < 8; ++i) {
    const uint8_t* p = b + 2 + 8 * i;
    const uint32_t word = Load32(b + 66 + 4 * i);
    SetTwo(d * (static_cast<float>(word >> 28) + 0.5f) / 2, s + 2 * i);
    for (int l = 0; l < 4; ++l) {
      StoreSigned(Entries4(kIq3XxsGrid[p[2 * l]], kIq3XxsGrid[p[2 * l + 1]]),
                  kParityMasks[word >> (7 * l) & 127], q + 32 * i + 8 * l);
    }
  }
}

void Iq3S(const uint8_t* b, int8_t* q, float* s, float*) {
  const float d = LoadF16(b);
  for (int i = 0; i < 8; ++i) {
    const uint8_t* p = b + 2 + 8 * i;
    const uint32_t high = b[66 + i], scale = b[106 + i / 2] >> (i % 2 * 4) & 15;
    SetTwo(d * static_cast<float>(1 + 2 * scale), s + 2 * i);
    for (int l = 0; l < 4; ++l) {
      const uint32_t first = p[2 * l] | (high >> (2 * l) & 1) << 8;
      const uint32_t second = p[2 * l + 1] | (high >> (2 * l + 1) & 1) << 8;
      StoreSigned(Entries4(kIq3SGrid[first], kIq3SGrid[second]), kSignMasks[b[74 + 4 * i + l]],
                  q + 32 * i + 8 * l);
    }
  }
}

// Codes are 8 times the grid's -1, 0 and 1, plus or minus 1; scales are an eighth.
void StoreIq1(const std::array<int8_t, 8>& entry, bool negative, int8_t* q) {
  for (int j = 0; j < 8; ++j) q[j] = static_cast<int8_t>(8 * entry[j] + (negative ? -1 : 1));
}

float Iq1Scale(float d, uint32_t s) { return d * static_cast<float>(2 * s + 1) / 8; }

void Iq1S(const uint8_t* b, int8_t* q, float* s, float*) {
  const float d = LoadF16(b);
  for (int i = 0; i < 8; ++i) {
    const uint32_t high = Load16(b + 34 + 2 * i);
    SetTwo(Iq1Scale(d, high >> 12 & 7), s + 2 * i);
    for (int l = 0; l < 4; ++l) {
      StoreIq1(kIq1Grid[b[2 + 4 * i + l] | (high >> (3 * l) & 7) << 8], high >> 15 != 0,
               q + 32 * i + 8 * l);
    }
  }
}

void Iq1M(const uint8_t* b, int8_t* q, float* s, float*) {
  uint16_t bits = 0;
  for (int i = 0; i < 4; ++i) {
    bits = static_cast<uint16_t>(bits | Load16(b + 48 + 2 * i) >> 12 << (4 * i));
  }
  const float d = F16ToFloat(bits);
  for (int g = 0; g < 16; ++g)
    s[g] = Iq1Scale(d, Load16(b + 48 + 2 * (g / 4)) >> (3 * (g % 4)) & 7);
  for (int l = 0; l < 32; ++l) {
    const uint32_t high = b[32 + l / 2] >> (l % 2 * 4) & 15;
    StoreIq1(kIq1Grid[b[l] | (high & 7) << 8], (high & 8) != 0, q + 8 * l);
  }
}

template <void (*Block)(const uint8_t*, int8_t*, float*, float*)>
void Each(const BlockInfo& info, const uint8_t* data, int64_t k, int8_t* codes, float* scale,
          float* min) {
  const int64_t runs = info.elements / kBlockRun;
  for (int64_t i = 0; i < k / info.elements; ++i) {
    Block(data + i * info.bytes, codes + i * info.elements, scale + i * runs,
          min == nullptr ? nullptr : min + i * runs);
  }
}

}  // namespace

void UnpackBlocks(BlockType type, const uint8_t* data, int64_t k, int8_t* codes, float* scale,
                  float* min) {
  const BlockInfo& info = InfoOf(type);
  switch (type) {
    case BlockType::kNone:
    case BlockType::kF32:
    case BlockType::kF16:
    case BlockType::kBf16:
    case BlockType::kCount:
      return;
    case BlockType::kQ4_0:
      return Each<Q4_0>(info, data, k, codes, scale, min);
    case BlockType::kQ4_1:
      return Each<Q4_1>(info, data, k, codes, scale, min);
    case BlockType::kQ5_0:
      return Each<Q5_0>(info, data, k, codes, scale, min);
    case BlockType::kQ5_1:
      return Each<Q5_1>(info, data, k, codes, scale, min);
    case BlockType::kQ8_0:
      return Each<Q8_0>(info, data, k, codes, scale, min);
    case BlockType::kQ2K:
      return Each<Q2K>(info, data, k, codes, scale, min);
    case BlockType::kQ3K:
      return Each<Q3K>(info, data, k, codes, scale, min);
    case BlockType::kQ4K:
      return Each<Q4K>(info, data, k, codes, scale, min);
    case BlockType::kQ5K:
      return Each<Q5K>(info, data, k, codes, scale, min);
    case BlockType::kQ6K:
      return Each<Q6K>(info, data, k, codes, scale, min);
    case BlockType::kIq2Xxs:
      return Each<Iq2Xxs>(info, data, k, codes, scale, min);
    case BlockType::kIq2Xs:
      return Each<Iq2Xs>(info, data, k, codes, scale, min);
    case BlockType::kIq2S:
      return Each<Iq2S>(info, data, k, codes, scale, min);
    case BlockType::kIq3Xxs:
      return Each<Iq3Xxs>(info, data, k, codes, scale, min);
    case BlockType::kIq3S:
      return Each<Iq3S>(info, data, k, codes, scale, min);
    case BlockType::kIq1S:
      return Each<Iq1S>(info, data, k, codes, scale, min);
    case BlockType::kIq1M:
      return Each<Iq1M>(info, data, k, codes, scale, min);
    case BlockType::kIq4Nl:
      return Each<Iq4Nl>(info, data, k, codes, scale, min);
    case BlockType::kIq4Xs:
      return Each<Iq4Xs>(info, data, k, codes, scale, min);
    case BlockType::kMxfp4:
#if defined(__x86_64__)
      if (__builtin_cpu_supports("ssse3")) {
        return ShuffledMxfp4(data, k / info.elements, codes, scale);
      }
#endif
      return Each<Mxfp4>(info, data, k, codes, scale, min);
    case BlockType::kNvfp4:
      return Each<Nvfp4>(info, data, k, codes, scale, min);
  }
}

}  // namespace dsv4
