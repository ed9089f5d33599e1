// SPDX-License-Identifier: Apache-2.0
// Reads 32 consecutive elements (a weight chunk) of a row of a packed weight in a quantised block
// format: codes of 8 bits under one or two scales and minima. The values are those of
// lib/tensor/block_format.h, bit for bit. Layout: block_layout.h.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/sm12x/arch/memory.cuh"
#include "kernels/sm12x/block_layout.h"
#include "lib/tensor/block_grids_packed.h"

namespace dsv4::sm12x {

inline constexpr int kChunk = 32;
inline constexpr int kSegment = 256;  // elements of a row: eight chunks
inline constexpr int kSegmentChunks = kSegment / kChunk;

template <int kIndex>
using Index = std::integral_constant<int, kIndex>;

// Where a row's part of each plane begins.
struct RowPlanes {
  const uint8_t* at[kMostPlanes];
};
template <BlockType kType, int kPlane = 0>
__device__ __forceinline__ void FindPlanes(const uint8_t* packed, int64_t n, int64_t blocks,
                                           int64_t row, RowPlanes* planes) {
  constexpr int32_t kBytes = PlaneOf(kType, kPlane).bytes;
  if constexpr (kBytes > 0) {
    planes->at[kPlane] = packed + row * blocks * kBytes;
    if constexpr (kPlane + 1 < kMostPlanes) {
      packed += (n * blocks * kBytes + 15) / 16 * 16;
      FindPlanes<kType, kPlane + 1>(packed, n, blocks, row, planes);
    }
  }
}
template <BlockType kType>
__device__ __forceinline__ RowPlanes PlanesOfRow(const uint8_t* packed, int64_t n, int64_t k,
                                                 int64_t row) {
  constexpr int64_t kElements = LayoutOf(kType).elements;
  RowPlanes planes;
  FindPlanes<kType>(packed, n, k / kElements, row, &planes);
  return planes;
}

__device__ __forceinline__ float HalfToFloat(uint32_t bits) {
  // The exponent is 112 higher in f32; the product also makes subnormal numbers normal.
  const float magnitude = __fmul_rn(__uint_as_float((bits & 0x7fffu) << 13), 0x1p112f);
  return __uint_as_float(__float_as_uint(magnitude) | (bits & 0x8000u) << 16);
}

template <class T>
__device__ __forceinline__ T Load(const uint8_t* at) {
  return __ldg(reinterpret_cast<const T*>(at));
}

// `word` less `amount` in each of its bytes, which are below 128 and may become negative.
__device__ __forceinline__ uint32_t BytesLess(uint32_t word, uint32_t amount) {
  return ((word | 0x80808080u) - amount) ^ 0x80808080u;
}

// The lowest four bits as four bytes of 0 or 1.
__device__ __forceinline__ uint32_t SpreadBits(uint32_t bits) {
  return (bits & 15u) * 0x00204081u & 0x01010101u;
}
// Four magnitudes, none of them 0, negated where the lowest four bits of `signs` are set.
__device__ __forceinline__ uint32_t Signed(uint32_t magnitudes, uint32_t signs) {
  const uint32_t ones = SpreadBits(signs);
  return (magnitudes ^ ones * 0xffu) + ones;
}
// Seven signs with their parity as the eighth.
__device__ __forceinline__ uint32_t WithParity(uint32_t signs) {
  return signs | (static_cast<uint32_t>(__popc(signs)) & 1u) << 7;
}

constexpr uint32_t TableWord(int a, int b, int c, int d) {
  return static_cast<uint8_t>(a) | static_cast<uint32_t>(static_cast<uint8_t>(b)) << 8 |
         static_cast<uint32_t>(static_cast<uint8_t>(c)) << 16 |
         static_cast<uint32_t>(static_cast<uint8_t>(d)) << 24;
}
// Entries of the table of e2m1, doubled, or of that of IQ4_NL and IQ4_XS: one for each of the lower
// four nibbles of `nibbles`.
template <bool kE2M1>
__device__ __forceinline__ uint32_t LookUp(uint32_t nibbles) {
  constexpr uint32_t k0 = kE2M1 ? TableWord(0, 1, 2, 3) : TableWord(-127, -104, -83, -65);
  constexpr uint32_t k4 = kE2M1 ? TableWord(4, 6, 8, 12) : TableWord(-49, -35, -22, -10);
  constexpr uint32_t k8 = kE2M1 ? TableWord(0, -1, -2, -3) : TableWord(1, 13, 25, 38);
  constexpr uint32_t k12 = kE2M1 ? TableWord(-4, -6, -8, -12) : TableWord(53, 69, 89, 113);
  const uint32_t low = nibbles & 0x7777u;
  return __byte_perm(__byte_perm(k0, k4, low), __byte_perm(k8, k12, low),
                     0x3210u | (nibbles & 0x8888u) >> 1);
}

// The codebooks as words of four values.
template <size_t kEntries, size_t kValues>
struct GridWords {
  static constexpr int kWords = static_cast<int>(kEntries * kValues / 4);
  uint32_t word[kEntries * kValues / 4];
};
template <size_t kEntries, size_t kValues>
constexpr GridWords<kEntries, kValues> WordsOf(const BlockGrid<kEntries, kValues>& grid,
                                               int times = 1, int plus = 0) {
  GridWords<kEntries, kValues> words{};
  for (size_t i = 0; i < kEntries * kValues; i += 4) {
    const auto at = [&](size_t j) { return times * grid[j / kValues][j % kValues] + plus; };
    words.word[i / 4] = TableWord(at(i), at(i + 1), at(i + 2), at(i + 3));
  }
  return words;
}
static __device__ const GridWords<256, 8> kIq2XxsWords =
    WordsOf(grids::Expand<256, 8>(grids::kIq2XxsPacked, grids::kIq2Levels));
static __device__ const GridWords<512, 8> kIq2XsWords =
    WordsOf(grids::Expand<512, 8>(grids::kIq2XsPacked, grids::kIq2Levels));
static __device__ const GridWords<1024, 8> kIq2SWords =
    WordsOf(grids::Expand<1024, 8>(grids::kIq2SPacked, grids::kIq2Levels));
static __device__ const GridWords<256, 4> kIq3XxsWords =
    WordsOf(grids::Expand<256, 4>(grids::kIq3XxsPacked, grids::kIq3XxsLevels));
static __device__ const GridWords<512, 4> kIq3SWords =
    WordsOf(grids::Expand<512, 4>(grids::kIq3SPacked, grids::kIq3SLevels));
// Eight times the entries -1, 0 and 1, plus 8.
static __device__ const GridWords<2048, 8> kIq1Words =
    WordsOf(grids::Expand<2048, 8>(grids::kIq1SPacked, grids::kIq1Levels), 8, 8);

template <BlockType kType>
__device__ __forceinline__ const uint32_t* GridOf() {
  if constexpr (kType == BlockType::kIq2Xxs) return kIq2XxsWords.word;
  if constexpr (kType == BlockType::kIq2Xs) return kIq2XsWords.word;
  if constexpr (kType == BlockType::kIq2S) return kIq2SWords.word;
  if constexpr (kType == BlockType::kIq3Xxs) return kIq3XxsWords.word;
  if constexpr (kType == BlockType::kIq3S) return kIq3SWords.word;
  if constexpr (kType == BlockType::kIq1S || kType == BlockType::kIq1M) return kIq1Words.word;
  return nullptr;
}
// Words of the codebook, a multiple of four; 0 if the format has none.
constexpr int GridWordsOf(BlockType type) {
  switch (type) {
    case BlockType::kIq2Xxs:
      return 512;
    case BlockType::kIq2Xs:
      return 1024;
    case BlockType::kIq2S:
      return 2048;
    case BlockType::kIq3Xxs:
      return 256;
    case BlockType::kIq3S:
      return 512;
    case BlockType::kIq1S:
    case BlockType::kIq1M:
      return 4096;
    default:
      return 0;
  }
}

// Whether the two halves of a chunk have scales of their own.
constexpr bool HasTwoScales(BlockType type) {
  switch (type) {
    case BlockType::kNvfp4:
    case BlockType::kQ2K:
    case BlockType::kQ3K:
    case BlockType::kQ6K:
    case BlockType::kIq2Xs:
    case BlockType::kIq2S:
    case BlockType::kIq1M:
      return true;
    default:
      return false;
  }
}
constexpr bool HasMin(BlockType type) {
  return type == BlockType::kQ4_1 || type == BlockType::kQ5_1 || type == BlockType::kQ2K ||
         type == BlockType::kQ4K || type == BlockType::kQ5K;
}

template <BlockType kType>
struct Chunk {
  static constexpr int kScales = HasTwoScales(kType) ? 2 : 1;
  static constexpr PlaneKind kCodes = PlaneOf(kType, 0).kind;
  // Words of a chunk's codes or indices, and of what else is read for its scales.
  static constexpr int kCodeWords = PlaneOf(kType, 0).bytes * kChunk / LayoutOf(kType).elements / 4;
  static constexpr int kMore = 3;

  uint32_t codes[kCodeWords];
  uint32_t more[kMore];  // unused ones take no register
  uint32_t bits[2];      // further bits of codes, signs

  // Chunk `c` (0 .. 7) of a segment. kOnce: the weight is read by one block alone.
  template <bool kOnce = true>
  __device__ __forceinline__ void Read(const RowPlanes& row, int segment, int c) {
    const auto at = [&]<int kPlane>(Index<kPlane>) {
      constexpr int kBytes = PlaneOf(kType, kPlane).bytes * (kSegment / LayoutOf(kType).elements);
      return row.at[kPlane] + segment * kBytes;
    };
    const uint8_t* const from = at(Index<0>()) + c * kCodeWords * 4;
    if constexpr (kCodeWords % 4 == 0) {
#pragma unroll
      for (int i = 0; i < kCodeWords / 4; ++i) {
        const uint4 v = kOnce ? LoadOnce(from + 16 * i) : Load<uint4>(from + 16 * i);
        codes[4 * i] = v.x;
        codes[4 * i + 1] = v.y;
        codes[4 * i + 2] = v.z;
        codes[4 * i + 3] = v.w;
      }
    } else if constexpr (kCodeWords == 2) {
      const uint2 v = Load<uint2>(from);
      codes[0] = v.x;
      codes[1] = v.y;
    } else {
      static_assert(kCodeWords == 1);
      codes[0] = Load<uint32_t>(from);
    }
    if constexpr (kType == BlockType::kQ4_0 || kType == BlockType::kQ8_0 ||
                  kType == BlockType::kIq4Nl) {
      more[0] = Load<uint16_t>(at(Index<1>()) + 2 * c);
    } else if constexpr (kType == BlockType::kQ4_1) {
      more[0] = Load<uint32_t>(at(Index<1>()) + 4 * c);
    } else if constexpr (kType == BlockType::kQ5_0 || kType == BlockType::kQ5_1) {
      bits[0] = Load<uint32_t>(at(Index<1>()) + 4 * c);
      more[0] = kType == BlockType::kQ5_0 ? Load<uint16_t>(at(Index<2>()) + 2 * c)
                                          : Load<uint32_t>(at(Index<2>()) + 4 * c);
    } else if constexpr (kType == BlockType::kMxfp4) {
      more[0] = Load<uint8_t>(at(Index<1>()) + c);
    } else if constexpr (kType == BlockType::kNvfp4) {
      more[0] = Load<uint16_t>(at(Index<1>()) + 2 * c);
    } else if constexpr (kType == BlockType::kQ2K) {
      more[0] = Load<uint16_t>(at(Index<1>()) + 2 * c);
      more[1] = Load<uint32_t>(at(Index<2>()));
    } else if constexpr (kType == BlockType::kQ3K) {
      bits[0] = Load<uint32_t>(at(Index<1>()) + 4 * c);
      more[0] = Load<uint16_t>(at(Index<2>()) + c % 4 * 2);
      more[1] = Load<uint16_t>(at(Index<2>()) + 8 + c % 2 * 2);
      more[2] = Load<uint16_t>(at(Index<3>()));
      more[0] = more[0] >> (c < 4 ? 0 : 4) & 0x0f0fu;
      more[1] = more[1] >> (c / 2 * 2) & 0x0303u;
    } else if constexpr (kType == BlockType::kQ4K || kType == BlockType::kQ5K) {
      constexpr int kFirst = kType == BlockType::kQ4K ? 1 : 2;
      if constexpr (kType == BlockType::kQ5K) bits[0] = Load<uint32_t>(at(Index<1>()) + 4 * c);
      const uint32_t low = Load<uint32_t>(at(Index<kFirst>())),
                     high = Load<uint32_t>(at(Index<kFirst>()) + 4),
                     rest = Load<uint32_t>(at(Index<kFirst>()) + 8);
      const int shift = c % 4 * 8;
      const uint32_t p = low >> shift & 0xff, q = high >> shift & 0xff, r = rest >> shift & 0xff;
      more[0] = c < 4 ? p & 63 : (r & 15) | p >> 6 << 4;
      more[1] = c < 4 ? q & 63 : r >> 4 | q >> 6 << 4;
      more[2] = Load<uint32_t>(at(Index<kFirst + 1>()));
    } else if constexpr (kType == BlockType::kQ6K) {
      const uint2 v = Load<uint2>(at(Index<1>()) + 8 * c);
      bits[0] = v.x;
      bits[1] = v.y;
      more[0] = Load<uint16_t>(at(Index<2>()) + 2 * c);
      more[1] = Load<uint16_t>(at(Index<3>()));
    } else if constexpr (kType == BlockType::kIq2Xxs) {
      more[0] = Load<uint16_t>(at(Index<1>()));
    } else if constexpr (kType == BlockType::kIq2Xs) {
      more[0] = Load<uint8_t>(at(Index<1>()) + c);
      more[1] = Load<uint16_t>(at(Index<2>()));
    } else if constexpr (kType == BlockType::kIq2S) {
      bits[0] = Load<uint32_t>(at(Index<1>()) + 4 * c);
      bits[1] = Load<uint8_t>(at(Index<2>()) + c);
      more[0] = Load<uint8_t>(at(Index<3>()) + c);
      more[1] = Load<uint16_t>(at(Index<4>()));
    } else if constexpr (kType == BlockType::kIq3Xxs) {
      bits[0] = Load<uint32_t>(at(Index<1>()) + 4 * c);
      more[0] = Load<uint16_t>(at(Index<2>()));
    } else if constexpr (kType == BlockType::kIq3S) {
      bits[0] = Load<uint8_t>(at(Index<1>()) + c);
      bits[1] = Load<uint32_t>(at(Index<2>()) + 4 * c);
      more[0] = Load<uint8_t>(at(Index<3>()) + c / 2) >> (c % 2 * 4) & 15u;
      more[1] = Load<uint16_t>(at(Index<4>()));
    } else if constexpr (kType == BlockType::kIq1S) {
      bits[0] = Load<uint16_t>(at(Index<1>()) + 2 * c);
      more[0] = Load<uint16_t>(at(Index<2>()));
    } else if constexpr (kType == BlockType::kIq1M) {
      bits[0] = Load<uint16_t>(at(Index<1>()) + 2 * c);
      const uint2 scales = Load<uint2>(at(Index<2>()));
      more[0] = scales.x >> 12 & 15 | (scales.x >> 28) << 4 | (scales.y >> 12 & 15) << 8 |
                (scales.y >> 28) << 12;
      more[1] = (c < 4 ? scales.x : scales.y) >> (c / 2 % 2 * 16 + c % 2 * 6) & 63u;
    } else {
      static_assert(kType == BlockType::kIq4Xs);
      more[0] = Load<uint8_t>(at(Index<1>()) + c / 2) >> (c % 2 * 4) & 15u;
      more[1] = Load<uint32_t>(at(Index<2>()));
      more[0] |= (more[1] >> (16 + 2 * c) & 3u) << 4;
    }
  }

  // The codes, four in a word, in the order of the elements. `grid`: the codebook.
  __device__ __forceinline__ void Unpack(const uint32_t* grid, uint32_t (&q)[8]) const {
    if constexpr (kType == BlockType::kQ8_0) {
#pragma unroll
      for (int i = 0; i < 8; ++i) q[i] = codes[i];
    } else if constexpr (kCodes == PlaneKind::kTable) {
      constexpr bool kE2M1 = kType == BlockType::kMxfp4 || kType == BlockType::kNvfp4;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        q[2 * i] = LookUp<kE2M1>(codes[i]);
        q[2 * i + 1] = LookUp<kE2M1>(codes[i] >> 16);
      }
    } else if constexpr (kCodes == PlaneKind::kBits4) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        q[i] = codes[i / 2] >> (i % 2 * 4) & 0x0f0f0f0fu;
        if constexpr (kType == BlockType::kQ4_0) q[i] = BytesLess(q[i], 0x08080808u);
        if constexpr (kType == BlockType::kQ5_0 || kType == BlockType::kQ5_1 ||
                      kType == BlockType::kQ5K) {
          q[i] |= (bits[0] >> i & 0x01010101u) << 4;
        }
        if constexpr (kType == BlockType::kQ5_0) q[i] = BytesLess(q[i], 0x10101010u);
        if constexpr (kType == BlockType::kQ6K) {
          q[i] |= (bits[i / 4] >> (i % 4 * 2) & 0x03030303u) << 4;
          q[i] = BytesLess(q[i], 0x20202020u);
        }
      }
    } else if constexpr (kCodes == PlaneKind::kBits2) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        q[i] = codes[i / 4] >> (i % 4 * 2) & 0x03030303u;
        if constexpr (kType == BlockType::kQ3K) {
          q[i] = BytesLess(q[i] | (bits[0] >> i & 0x01010101u) << 2, 0x04040404u);
        }
      }
    } else if constexpr (kType == BlockType::kIq2Xxs) {
#pragma unroll
      for (int l = 0; l < 4; ++l) {
        SetEight(grid, codes[0] >> (8 * l) & 0xff, WithParity(codes[1] >> (7 * l) & 127),
                 &q[2 * l]);
      }
    } else if constexpr (kType == BlockType::kIq2Xs) {
#pragma unroll
      for (int l = 0; l < 4; ++l) {
        const uint32_t word = codes[l / 2] >> (l % 2 * 16) & 0xffffu;
        SetEight(grid, word & 511, WithParity(word >> 9), &q[2 * l]);
      }
    } else if constexpr (kType == BlockType::kIq2S) {
#pragma unroll
      for (int l = 0; l < 4; ++l) {
        const uint32_t index = (codes[0] >> (8 * l) & 0xff) | (bits[1] >> (2 * l) & 3) << 8;
        SetEight(grid, index, bits[0] >> (8 * l), &q[2 * l]);
      }
    } else if constexpr (kType == BlockType::kIq3Xxs || kType == BlockType::kIq3S) {
#pragma unroll
      for (int l = 0; l < 8; ++l) {
        uint32_t index = codes[l / 4] >> (l % 4 * 8) & 0xff, signs;
        if constexpr (kType == BlockType::kIq3S) {
          index |= (bits[0] >> l & 1) << 8;
          signs = bits[1] >> (4 * l);
        } else {
          signs = WithParity(bits[0] >> (7 * (l / 2)) & 127) >> (l % 2 * 4);
        }
        q[l] = Signed(grid[index], signs);
      }
    } else {
      static_assert(kType == BlockType::kIq1S || kType == BlockType::kIq1M);
#pragma unroll
      for (int l = 0; l < 4; ++l) {
        const bool s = kType == BlockType::kIq1S;
        const uint32_t high = s ? bits[0] >> (3 * l) & 7 : bits[0] >> (4 * l) & 7;
        const bool negative = (s ? bits[0] >> 15 : bits[0] >> (4 * l + 3) & 1) != 0;
        const uint2 entry =
            reinterpret_cast<const uint2*>(grid)[(codes[0] >> (8 * l) & 0xff) | high << 8];
        const uint32_t less = negative ? 0x09090909u : 0x07070707u;
        q[2 * l] = BytesLess(entry.x, less);
        q[2 * l + 1] = BytesLess(entry.y, less);
      }
    }
  }

  __device__ __forceinline__ void Scales(float (&s)[kScales], float (&m)[kScales]) const {
    const auto times = [](float d, uint32_t integer) {
      return __fmul_rn(d, static_cast<float>(static_cast<int32_t>(integer)));
    };
    if constexpr (kType == BlockType::kQ4_0 || kType == BlockType::kQ5_0 ||
                  kType == BlockType::kQ8_0 || kType == BlockType::kIq4Nl) {
      s[0] = HalfToFloat(more[0]);
    } else if constexpr (kType == BlockType::kQ4_1 || kType == BlockType::kQ5_1) {
      s[0] = HalfToFloat(more[0] & 0xffff);
      m[0] = -HalfToFloat(more[0] >> 16);
    } else if constexpr (kType == BlockType::kMxfp4) {
      // Half of 2^(byte - 127), since codes are doubled.
      s[0] = __fmul_rn(__uint_as_float(more[0] == 0 ? 0x00400000u : more[0] << 23), 0.5f);
    } else if constexpr (kType == BlockType::kNvfp4) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint32_t byte = more[0] >> (8 * i) & 0xff, exponent = byte >> 3 & 15, low = byte & 7;
        const float magnitude =
            exponent == 0 ? static_cast<float>(low) * 0x1p-9f
                          : static_cast<float>(8 + low) * __uint_as_float((117 + exponent) << 23);
        s[i] = byte == 0x7f ? 0.0f : magnitude * 0.5f;
      }
    } else if constexpr (kType == BlockType::kQ2K) {
      const float d = HalfToFloat(more[1] & 0xffff), min = HalfToFloat(more[1] >> 16);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        s[i] = times(d, more[0] >> (8 * i) & 15);
        m[i] = times(min, more[0] >> (8 * i + 4) & 15);
      }
    } else if constexpr (kType == BlockType::kQ3K) {
      const float d = HalfToFloat(more[2]);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        s[i] = times(d, ((more[0] >> (8 * i) & 15) | (more[1] >> (8 * i) & 3) << 4) - 32u);
      }
    } else if constexpr (kType == BlockType::kQ4K || kType == BlockType::kQ5K) {
      s[0] = times(HalfToFloat(more[2] & 0xffff), more[0]);
      m[0] = times(HalfToFloat(more[2] >> 16), more[1]);
    } else if constexpr (kType == BlockType::kQ6K) {
      const float d = HalfToFloat(more[1]);
      s[0] = times(d, static_cast<uint32_t>(static_cast<int8_t>(more[0] & 0xff)));
      s[1] = times(d, static_cast<uint32_t>(static_cast<int8_t>(more[0] >> 8)));
    } else if constexpr (kType == BlockType::kIq2Xxs) {
      s[0] = HalfSteps(HalfToFloat(more[0]), codes[1] >> 28, 0.25f);
    } else if constexpr (kType == BlockType::kIq2Xs || kType == BlockType::kIq2S) {
      const float d = HalfToFloat(more[1]);
      s[0] = HalfSteps(d, more[0] & 15, 0.25f);
      s[1] = HalfSteps(d, more[0] >> 4, 0.25f);
    } else if constexpr (kType == BlockType::kIq3Xxs) {
      s[0] = HalfSteps(HalfToFloat(more[0]), bits[0] >> 28, 0.5f);
    } else if constexpr (kType == BlockType::kIq3S) {
      s[0] = times(HalfToFloat(more[1]), 1 + 2 * more[0]);
    } else if constexpr (kType == BlockType::kIq1S) {
      s[0] = times(HalfToFloat(more[0]), 2 * (bits[0] >> 12 & 7) + 1) * 0.125f;
    } else if constexpr (kType == BlockType::kIq1M) {
      const float d = HalfToFloat(more[0]);
      s[0] = times(d, 2 * (more[1] & 7) + 1) * 0.125f;
      s[1] = times(d, 2 * (more[1] >> 3) + 1) * 0.125f;
    } else {
      static_assert(kType == BlockType::kIq4Xs);
      s[0] = times(HalfToFloat(more[1] & 0xffff), more[0] - 32u);
    }
  }

 private:
  // d (steps + 1 / 2) part, part a power of two.
  static __device__ __forceinline__ float HalfSteps(float d, uint32_t steps, float part) {
    return __fmul_rn(d, static_cast<float>(steps) + 0.5f) * part;
  }
  // Eight codes of an entry of the codebook.
  static __device__ __forceinline__ void SetEight(const uint32_t* grid, uint32_t entry,
                                                  uint32_t signs, uint32_t* q) {
    const uint2 words = reinterpret_cast<const uint2*>(grid)[entry];
    q[0] = Signed(words.x, signs);
    q[1] = Signed(words.y, signs >> 4);
  }
};

// A chunk of a format without scales.
template <BlockType kType>
struct PlainChunk {
  static constexpr int kBytes = PlaneOf(kType, 0).bytes, kWords = kBytes / 16;
  uint4 words[kWords];

  __device__ __forceinline__ void Read(const RowPlanes& row, int segment, int c) {
    const uint8_t* const from = row.at[0] + (segment * kSegmentChunks + c) * kBytes;
#pragma unroll
    for (int i = 0; i < kWords; ++i) words[i] = LoadOnce(from + 16 * i);
  }

  // Eight elements, the quarter-th of the chunk.
  __device__ __forceinline__ void Eight(int quarter, float (&w)[8]) const {
    if constexpr (kType == BlockType::kF32) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint4 v = words[2 * quarter + i];
        w[4 * i] = __uint_as_float(v.x);
        w[4 * i + 1] = __uint_as_float(v.y);
        w[4 * i + 2] = __uint_as_float(v.z);
        w[4 * i + 3] = __uint_as_float(v.w);
      }
    } else {
      constexpr bool kHalf = kType == BlockType::kF16;
      const uint4 v = words[quarter];
      const uint32_t pairs[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        w[2 * i] = kHalf ? HalfToFloat(pairs[i] & 0xffff) : __uint_as_float(pairs[i] << 16);
        w[2 * i + 1] =
            kHalf ? HalfToFloat(pairs[i] >> 16) : __uint_as_float(pairs[i] & 0xffff0000u);
      }
    }
  }
};

// The values of a chunk of a row, of any format.
template <BlockType kType>
__device__ __forceinline__ void LoadChunk(const RowPlanes& row, int chunk,
                                          float (&values)[kChunk]) {
  if constexpr (IsQuantised(kType)) {
    using C = Chunk<kType>;
    C read;
    read.Read(row, chunk / kSegmentChunks, chunk % kSegmentChunks);
    uint32_t q[8];
    float s[C::kScales], m[C::kScales] = {};
    read.Unpack(GridOf<kType>(), q);
    read.Scales(s, m);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      const int half = C::kScales == 1 ? 0 : i / 16;
      const int code = static_cast<int8_t>(q[i / 4] >> (i % 4 * 8) & 0xff);
      values[i] = __fsub_rn(__fmul_rn(s[half], static_cast<float>(code)), m[half]);
    }
  } else {
    PlainChunk<kType> read;
    read.Read(row, chunk / kSegmentChunks, chunk % kSegmentChunks);
#pragma unroll
    for (int quarter = 0; quarter < 4; ++quarter) {
      float eight[8];
      read.Eight(quarter, eight);
#pragma unroll
      for (int i = 0; i < 8; ++i) values[quarter * 8 + i] = eight[i];
    }
  }
}

}  // namespace dsv4::sm12x
