// SPDX-License-Identifier: Apache-2.0
// The dot products for processors with AVX512-BF16 and AVX512-VBMI (Zen 4 and later, Sapphire
// Rapids and later), by intrinsics: vdpbf16ps has twice the multiply rate of an f32 FMA and reads
// bf16 as stored, and byte permutes look up 64 e4m3 magnitudes at a time. Compiled with these
// instruction sets; nothing here may run before dot.cc has asked the processor.
//
// vdpbf16ps takes subnormal bf16 as zero, so unpacked weights are always normal numbers. Tile: 6 x
// 4 accumulators, 10 loads for 24 dot products. Up to 3 rows that unpack in registers: 8 columns,
// so that the chains of sums cover the latency of vdpbf16ps.
#include <immintrin.h>

#include "kernels/cpu/dot.h"
#include "kernels/cpu/unpack_avx512-inl.h"

namespace dsv4 {
namespace {

constexpr int kStep = 32;  // elements of K per vector

inline __m512bh LoadBf16(const uint16_t* p) {
  return reinterpret_cast<__m512bh>(_mm512_loadu_si512(p));
}

inline __m512bh AsBf16(__m512i v) { return reinterpret_cast<__m512bh>(v); }

// ---- Sums over the 16 lanes of an accumulator.

inline __m512 AddPairs(__m512 a, __m512 b) {
  return _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
}

// In each 128-bit lane: the sums of that lane of a, b, c, d.
inline __m512 SumWithinLanes(__m512 a, __m512 b, __m512 c, __m512 d) {
  const __m512d ab = _mm512_castps_pd(AddPairs(a, b)), cd = _mm512_castps_pd(AddPairs(c, d));
  return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd)),
                       _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd)));
}

// 128-bit lane i of the result: the sum of the four 128-bit lanes of argument i.
inline __m512 SumAcrossLanes(__m512 a, __m512 b, __m512 c, __m512 d) {
  const __m512 ab =
      _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  const __m512 cd =
      _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x88), _mm512_shuffle_f32x4(c, d, 0xdd));
  return _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
}

template <int kLane>
inline void StoreFour(__m512 sums, float* out, int count) {
  const __m128 v = _mm512_extractf32x4_ps(sums, kLane);
  if (count >= 4) {
    _mm_storeu_ps(out, v);
  } else {
    _mm_mask_storeu_ps(out, static_cast<__mmask8>((1 << count) - 1), v);
  }
}

// Stores the sums of acc[i][j] to out[i * ld + j] for j < n.
template <int kRows, int kCols>
inline void StoreSums(const __m512 (&acc)[kRows][kCols], int n, float* out, int64_t ld) {
  static_assert(kCols % 4 == 0);
  constexpr int kGroups = kRows * kCols / 4;
  __m512 sums[kGroups];
#pragma GCC unroll 8
  for (int g = 0; g < kGroups; ++g) {
    const __m512* four = &acc[g / (kCols / 4)][g % (kCols / 4) * 4];
    sums[g] = SumWithinLanes(four[0], four[1], four[2], four[3]);
  }
#pragma GCC unroll 8
  for (int g = 0; g < kGroups; g += 4) {
    const __m512 v =
        SumAcrossLanes(sums[g], sums[g + 1 < kGroups ? g + 1 : g],
                       sums[g + 2 < kGroups ? g + 2 : g], sums[g + 3 < kGroups ? g + 3 : g]);
    constexpr int kPerRow = kCols / 4;
    const auto at = [&](int q) { return out + (g + q) / kPerRow * ld + (g + q) % kPerRow * 4; };
    const auto left = [&](int q) { return n - (g + q) % kPerRow * 4; };
    if (left(0) > 0) StoreFour<0>(v, at(0), left(0));
    if (g + 1 < kGroups && left(1) > 0) StoreFour<1>(v, at(1), left(1));
    if (g + 2 < kGroups && left(2) > 0) StoreFour<2>(v, at(2), left(2));
    if (g + 3 < kGroups && left(3) > 0) StoreFour<3>(v, at(3), left(3));
  }
}

// ---- bf16 weights.

// Columns from n on repeat column n - 1 and are not stored. kAhead: asks for the next weights, as
// only the first tile that reads a column has to.
template <int kRows, int kCols, bool kAhead = false>
inline void TileBf16(const ActRows& a, int64_t m, const uint16_t* w, int64_t w_stride, int n,
                     int64_t k, float* out, int64_t ld) {
  const uint16_t* rows[kRows];
  const uint16_t* cols[kCols];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) rows[i] = a.Row(m + i);
#pragma GCC unroll 8
  for (int j = 0; j < kCols; ++j) cols[j] = w + (j < n ? j : n - 1) * w_stride;
  __m512 acc[kRows][kCols];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kCols; ++j) acc[i][j] = _mm512_setzero_ps();
  }
  const int64_t ahead = AheadBytes(kCols * k * 2);
  for (int64_t p = 0; p < k; p += kStep) {
    __m512bh b[kCols];
#pragma GCC unroll 8
    for (int j = 0; j < kCols; ++j) {
      b[j] = LoadBf16(cols[j] + p);
      if (kAhead) Prefetch(reinterpret_cast<const char*>(cols[j] + p) + ahead);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const __m512bh v = LoadBf16(rows[i] + p);
#pragma GCC unroll 8
      for (int j = 0; j < kCols; ++j) acc[i][j] = _mm512_dpbf16_ps(acc[i][j], v, b[j]);
    }
  }
  StoreSums<kRows, kCols>(acc, n, out + m * ld, ld);
}

void DotBf16(const ActRows& a, int64_t m, const uint16_t* w, int64_t w_stride, int64_t n, int64_t k,
             float* out, int64_t ld) {
  if (m == 1) {
    for (int64_t j = 0; j < n; j += 8) {
      TileBf16<1, 8, true>(a, 0, w + j * w_stride, w_stride,
                           static_cast<int>(n - j < 8 ? n - j : 8), k, out + j, ld);
    }
    return;
  }
  for (int64_t j = 0; j < n; j += 4) {
    const int cols = static_cast<int>(n - j < 4 ? n - j : 4);
    const uint16_t* wj = w + j * w_stride;
    int64_t i = 0;
    if (m >= 6) {
      TileBf16<6, 4, true>(a, 0, wj, w_stride, cols, k, out + j, ld);
      for (i = 6; i + 6 <= m; i += 6) TileBf16<6, 4>(a, i, wj, w_stride, cols, k, out + j, ld);
    }
    switch (m - i) {
      case 1:
        TileBf16<1, 4>(a, i, wj, w_stride, cols, k, out + j, ld);
        break;
      case 2:
        TileBf16<2, 4, true>(a, i, wj, w_stride, cols, k, out + j, ld);
        break;
      case 3:
        TileBf16<3, 4, true>(a, i, wj, w_stride, cols, k, out + j, ld);
        break;
      case 4:
        TileBf16<4, 4, true>(a, i, wj, w_stride, cols, k, out + j, ld);
        break;
      case 5:
        TileBf16<5, 4, true>(a, i, wj, w_stride, cols, k, out + j, ld);
        break;
      default:
        break;
    }
  }
}

// ---- FP8 weights.

void UnpackFp8(const uint8_t* w, const uint8_t* scale, int64_t n, int64_t k, uint16_t* out) {
  for (int64_t block = 0; block < k / 128; ++block) {
    const Fp8Unpacker unpacker(Fold(scale, block));
    for (int64_t j = 0; j < n; ++j) {
      const uint8_t* from = w + j * k + block * 128;
      uint16_t* to = out + j * k + block * 128;
      for (int half = 0; half < 2; ++half) {
        __m512i first, second;
        unpacker.Unpack(from + half * 64, first, second);
        _mm512_storeu_si512(to + half * 64, first);
        _mm512_storeu_si512(to + half * 64 + 32, second);
      }
    }
  }
}

template <int kRows, int kCols>
inline void TileFp8(const ActRows& a, const uint8_t* w, const uint8_t* scale, int n, int64_t k,
                    float* out, int64_t ld) {
  const uint16_t* rows[kRows];
  const uint8_t* cols[kCols];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) rows[i] = a.Row(i);
#pragma GCC unroll 8
  for (int j = 0; j < kCols; ++j) cols[j] = w + (j < n ? j : n - 1) * k;
  __m512 acc[kRows][kCols];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kCols; ++j) acc[i][j] = _mm512_setzero_ps();
  }
  const int64_t ahead = AheadBytes(kCols * k);
  for (int64_t block = 0; block < k / 128; ++block) {
    const Fp8Unpacker unpacker(Fold(scale, block));
    for (int64_t p = block * 128; p < block * 128 + 128; p += 2 * kStep) {
      if constexpr (kCols > 4) {
        __m512bh v[kRows][2];
#pragma GCC unroll 8
        for (int i = 0; i < kRows; ++i) {
          v[i][0] = LoadBf16(rows[i] + p);
          v[i][1] = LoadBf16(rows[i] + p + kStep);
        }
#pragma GCC unroll 8
        for (int j = 0; j < kCols; ++j) {
          __m512i first, second;
          unpacker.Unpack(cols[j] + p, first, second);
          Prefetch(cols[j] + p + ahead);
#pragma GCC unroll 8
          for (int i = 0; i < kRows; ++i) {
            acc[i][j] = _mm512_dpbf16_ps(acc[i][j], v[i][0], AsBf16(first));
            acc[i][j] = _mm512_dpbf16_ps(acc[i][j], v[i][1], AsBf16(second));
          }
        }
      } else {
        // Weights are held and rows are not: both do not fit in the registers.
        __m512i held[kCols][2];
#pragma GCC unroll 8
        for (int j = 0; j < kCols; ++j) {
          unpacker.Unpack(cols[j] + p, held[j][0], held[j][1]);
          Prefetch(cols[j] + p + ahead);
        }
#pragma GCC unroll 8
        for (int half = 0; half < 2; ++half) {
#pragma GCC unroll 8
          for (int i = 0; i < kRows; ++i) {
            const __m512bh v = LoadBf16(rows[i] + p + half * kStep);
#pragma GCC unroll 8
            for (int j = 0; j < kCols; ++j) {
              acc[i][j] = _mm512_dpbf16_ps(acc[i][j], v, AsBf16(held[j][half]));
            }
          }
        }
      }
    }
  }
  StoreSums<kRows, kCols>(acc, n, out, ld);
}

// Calls run<rows, columns>() with the tile for m rows, 1 to 6.
template <class Run>
void WithTile(int64_t m, const Run& run) {
  switch (m) {
    case 1:
      return run.template operator()<1, 8>();
    case 2:
      return run.template operator()<2, 8>();
    case 3:
      return run.template operator()<3, 8>();
    case 4:
      return run.template operator()<4, 4>();
    case 5:
      return run.template operator()<5, 4>();
    default:
      return run.template operator()<6, 4>();
  }
}

void DirectFp8(const ActRows& a, int64_t m, const uint8_t* w, const uint8_t* scale, int64_t n,
               int64_t k, float* out, int64_t ld) {
  WithTile(m, [&]<int kRows, int kCols>() {
    for (int64_t j = 0; j < n; j += kCols) {
      TileFp8<kRows, kCols>(a, w + j * k, scale, static_cast<int>(n - j < kCols ? n - j : kCols), k,
                            out + j, ld);
    }
  });
}

// ---- FP4 weights.

void UnpackFp4(const uint8_t* w, const uint8_t* scale, int64_t n, int64_t k, uint16_t* out) {
  alignas(64) uint32_t folds[kRuns] = {};
  const int64_t runs = n * (k / 32);  // rows follow each other without a gap
  for (int64_t r = 0; r < runs; r += kRuns) {
    const int64_t count = runs - r < kRuns ? runs - r : kRuns;
    if (scale != nullptr) StoreFolds(scale + r, count, folds);
    for (int64_t c = 0; c < count; ++c) {
      _mm512_storeu_si512(out + (r + c) * 32, UnpackRun(w + (r + c) * 16, folds[c]));
    }
  }
}

template <int kRows, int kCols>
inline void TileFp4(const ActRows& a, const uint8_t* w, const uint32_t* folds, int n, int64_t k,
                    float* out, int64_t ld) {
  const int64_t runs = k / 32;
  const uint16_t* rows[kRows];
  const uint8_t* cols[kCols];
  const uint32_t* col_folds[kCols];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) rows[i] = a.Row(i);
#pragma GCC unroll 8
  for (int j = 0; j < kCols; ++j) {
    cols[j] = w + (j < n ? j : n - 1) * (k / 2);
    col_folds[j] = folds + (j < n ? j : n - 1) * runs;
  }
  __m512 acc[kRows][kCols];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kCols; ++j) acc[i][j] = _mm512_setzero_ps();
  }
  const int64_t ahead = AheadBytes(kCols * k / 2);
  for (int64_t r = 0; r < runs; ++r) {
    __m512bh b[kCols];
#pragma GCC unroll 8
    for (int j = 0; j < kCols; ++j) {
      b[j] = AsBf16(UnpackRun(cols[j] + r * 16, col_folds[j][r]));
      if (r % 4 == 0) Prefetch(cols[j] + r * 16 + ahead);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const __m512bh v = LoadBf16(rows[i] + r * 32);
#pragma GCC unroll 8
      for (int j = 0; j < kCols; ++j) acc[i][j] = _mm512_dpbf16_ps(acc[i][j], v, b[j]);
    }
  }
  StoreSums<kRows, kCols>(acc, n, out, ld);
}

template <int kRows, int kCols>
void DirectFp4Rows(const ActRows& a, const uint8_t* w, const uint8_t* scale, int64_t n, int64_t k,
                   float* out, int64_t ld) {
  // The scales of several tiles are prepared ahead: a fold that is read just after the vector store
  // it came by waits for it.
  const int64_t runs = k / 32;
  constexpr int64_t kFolds = kCols * kDirectMaxK / 32;
  alignas(64) uint32_t folds[kFolds];
  const int64_t block = kFolds / runs / kCols * kCols;
  for (int64_t n0 = 0; n0 < n; n0 += block) {
    const int64_t count = n - n0 < block ? n - n0 : block;
    StoreFolds(scale + n0 * runs, count * runs, folds);
    for (int64_t j = 0; j < count; j += kCols) {
      const uint8_t* tile = w + (n0 + j) * (k / 2);
      TileFp4<kRows, kCols>(a, tile, folds + j * runs,
                            static_cast<int>(count - j < kCols ? count - j : kCols), k,
                            out + n0 + j, ld);
    }
  }
}

void DirectFp4(const ActRows& a, int64_t m, const uint8_t* w, const uint8_t* scale, int64_t n,
               int64_t k, float* out, int64_t ld) {
  WithTile(
      m, [&]<int kRows, int kCols>() { DirectFp4Rows<kRows, kCols>(a, w, scale, n, k, out, ld); });
}

}  // namespace

const DotKernels kDotAvx512Bf16 = {.name = "avx512bf16",
                                   .bf16 = &DotBf16,
                                   .unpack_fp8 = &UnpackFp8,
                                   .unpack_fp4 = &UnpackFp4,
                                   .direct_fp8 = &DirectFp8,
                                   .direct_fp4 = &DirectFp4};

}  // namespace dsv4
