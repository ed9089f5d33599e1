// SPDX-License-Identifier: Apache-2.0
// The attention operators' dot products by vdpbf16ps, in raw intrinsics: Highway 1.0 has no target
// with that instruction. Compiled with its own flags, so nothing inline may come from elsewhere.
#include <immintrin.h>

#include "kernels/cpu/attention_dot.h"

namespace dsv4 {
namespace {

constexpr int64_t kRowElements = 512;
constexpr int64_t kQuantizedElements = 448;  // of a key/value row; bf16 beyond
constexpr int64_t kKeyElements = 128;

inline __m512bh LoadBf16(const uint16_t* p) { return (__m512bh)_mm512_loadu_si512(p); }

// The lower eight lanes of v plus the upper eight, in double.
inline __m512d HalvesInDouble(__m512 v) {
  return _mm512_add_pd(_mm512_cvtps_pd(_mm512_castps512_ps256(v)),
                       _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1)));
}

// The sums of the lanes of v[0..3].
inline __m256d Sums(const __m512d* v) {
  const __m512d ab = _mm512_add_pd(_mm512_unpacklo_pd(v[0], v[1]), _mm512_unpackhi_pd(v[0], v[1]));
  const __m512d cd = _mm512_add_pd(_mm512_unpacklo_pd(v[2], v[3]), _mm512_unpackhi_pd(v[2], v[3]));
  // Blocks of a, b and of c, d: 0 + 2 and 1 + 3 of each, side by side.
  const __m512d sums =
      _mm512_add_pd(_mm512_shuffle_f64x2(ab, cd, 0x44), _mm512_shuffle_f64x2(ab, cd, 0xee));
  const __m256d low = _mm512_castpd512_pd256(sums), high = _mm512_extractf64x4_pd(sums, 1);
  return _mm256_add_pd(_mm256_permute2f128_pd(low, high, 0x20),
                       _mm256_permute2f128_pd(low, high, 0x31));
}

// sums[h][n] += q[h] . row[n] over elements [begin, end): in f32 within a lane, then in double.
template <int kHeads>
inline void AddSegment(const uint16_t* q, const uint16_t* const* row, int64_t begin, int64_t end,
                       __m512d (*sums)[4]) {
  __m512 acc[kHeads][4];
  for (auto& lanes : acc) {
    for (__m512& lane : lanes) lane = _mm512_setzero_ps();
  }
  for (int64_t i = begin; i < end; i += 32) {
    const __m512bh value[4] = {LoadBf16(row[0] + i), LoadBf16(row[1] + i), LoadBf16(row[2] + i),
                               LoadBf16(row[3] + i)};
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      const __m512bh query = LoadBf16(q + h * kRowElements + i);
#pragma GCC unroll 4
      for (int n = 0; n < 4; ++n) acc[h][n] = _mm512_dpbf16_ps(acc[h][n], query, value[n]);
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
    for (int n = 0; n < 4; ++n) sums[h][n] = _mm512_add_pd(sums[h][n], HalvesInDouble(acc[h][n]));
  }
}

// scores[h * stride + n] for kHeads heads and up to four rows; absent rows repeat the last one. All
// but a row's last 64 elements are e4m3 numbers times a power of two: products of 12 bits, whose
// sums over a lane of a segment are nearly always exact in f32. The last 64 have all 8 bits of bf16
// and therefore a segment of their own, with four products to a lane.
template <int kHeads>
inline void ScoreTile(const uint16_t* q, const uint16_t* const* rows, int64_t count, double* scores,
                      int64_t stride) {
  const uint16_t* row[4];
  for (int64_t n = 0; n < 4; ++n) row[n] = rows[n < count ? n : count - 1];
  __m512d sums[kHeads][4];
  for (auto& lanes : sums) {
    for (__m512d& lane : lanes) lane = _mm512_setzero_pd();
  }
  AddSegment<kHeads>(q, row, 0, kQuantizedElements / 2, sums);
  AddSegment<kHeads>(q, row, kQuantizedElements / 2, kQuantizedElements, sums);
  AddSegment<kHeads>(q, row, kQuantizedElements, kRowElements, sums);
  const auto mask = static_cast<__mmask8>((1u << (count < 4 ? count : 4)) - 1);
  for (int h = 0; h < kHeads; ++h) {
    _mm256_mask_storeu_pd(scores + h * stride, mask, Sums(sums[h]));
  }
}

template <int kHeads>
void ScoreHeads(const uint16_t* q, const uint16_t* const* rows, int64_t count, double* scores,
                int64_t stride) {
  for (int64_t n = 0; n < count; n += 4) {
    ScoreTile<kHeads>(q, rows + n, count - n, scores + n, stride);
  }
}

void ScoreRows(const uint16_t* q, int64_t heads, const uint16_t* const* rows, int64_t count,
               double* scores, int64_t stride) {
  switch (heads) {
    case 1:
      return ScoreHeads<1>(q, rows, count, scores, stride);
    case 2:
      return ScoreHeads<2>(q, rows, count, scores, stride);
    case 3:
      return ScoreHeads<3>(q, rows, count, scores, stride);
    default:
      return ScoreHeads<4>(q, rows, count, scores, stride);
  }
}

// Adds the terms of kHeads heads to the sums of 32 keys, in the order of the heads.
template <int kHeads>
inline void AddHeads(const uint32_t* panel, const uint16_t* q, const float* weights, __m512* sums) {
  __m512 acc[kHeads][2];
  for (auto& a : acc) a[0] = a[1] = _mm512_setzero_ps();
#pragma GCC unroll 2
  for (int64_t d = 0; d < kKeyElements / 2; ++d) {
    const auto low = (__m512bh)_mm512_loadu_si512(panel + d * kPanelKeys);
    const auto high = (__m512bh)_mm512_loadu_si512(panel + d * kPanelKeys + 16);
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; ++h) {
      int32_t pair;
      __builtin_memcpy(&pair, q + h * kKeyElements + 2 * d, 4);
      const auto value = (__m512bh)_mm512_set1_epi32(pair);
      acc[h][0] = _mm512_dpbf16_ps(acc[h][0], low, value);
      acc[h][1] = _mm512_dpbf16_ps(acc[h][1], high, value);
    }
  }
  for (int h = 0; h < kHeads; ++h) {
    const __m512 weight = _mm512_set1_ps(weights[h]);
    for (int v = 0; v < 2; ++v) {
      const __m512 positive = _mm512_max_ps(acc[h][v], _mm512_setzero_ps());
      sums[v] = _mm512_fmadd_ps(weight, positive, sums[v]);
    }
  }
}

void ScorePanel(const uint32_t* panel, const uint16_t* q, const float* weights, int64_t heads,
                float* scores) {
  __m512 sums[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  int64_t h = 0;
  for (; h + 8 <= heads; h += 8) AddHeads<8>(panel, q + h * kKeyElements, weights + h, sums);
  for (; h < heads; ++h) AddHeads<1>(panel, q + h * kKeyElements, weights + h, sums);
  _mm512_storeu_ps(scores, sums[0]);
  _mm512_storeu_ps(scores + 16, sums[1]);
}

}  // namespace

const AttentionDot kAttentionDotAvx512Bf16 = {&ScoreRows, &ScorePanel};

}  // namespace dsv4
