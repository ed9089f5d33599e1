// SPDX-License-Identifier: Apache-2.0
// The attention operators' dot products by vdpbf16ps, in raw intrinsics: Highway 1.0 has no target
// with that instruction. Compiled with its own flags, so nothing inline may come from elsewhere.
#include <immintrin.h>

#include "kernels/cpu/attention_dot.h"

namespace dsv4 {
namespace {

constexpr int64_t kRowElements = 512;
constexpr int64_t kKeyElements = 128;

inline __m512bh LoadBf16(const uint16_t* p) { return (__m512bh)_mm512_loadu_si512(p); }

// The sums of the lanes of a, b, c, d.
inline __m128 Sums(__m512 a, __m512 b, __m512 c, __m512 d) {
  const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
  const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
  const __m512d ab64 = _mm512_castps_pd(ab), cd64 = _mm512_castps_pd(cd);
  const __m512 sums = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(ab64, cd64)),
                                    _mm512_castpd_ps(_mm512_unpackhi_pd(ab64, cd64)));
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(sums), _mm512_extractf32x8_ps(sums, 1));
  return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

// scores[h * stride + n] for kHeads heads and up to four rows; absent rows repeat the last one.
template <int kHeads>
inline void ScoreTile(const uint16_t* q, const uint16_t* const* rows, int64_t count, float* scores,
                      int64_t stride) {
  const uint16_t* row[4];
  for (int64_t n = 0; n < 4; ++n) row[n] = rows[n < count ? n : count - 1];
  __m512 acc[kHeads][4];
  for (auto& sums : acc) {
    for (__m512& sum : sums) sum = _mm512_setzero_ps();
  }
#pragma GCC unroll 2
  for (int64_t i = 0; i < kRowElements; i += 32) {
    const __m512bh value[4] = {LoadBf16(row[0] + i), LoadBf16(row[1] + i), LoadBf16(row[2] + i),
                               LoadBf16(row[3] + i)};
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      const __m512bh query = LoadBf16(q + h * kRowElements + i);
#pragma GCC unroll 4
      for (int n = 0; n < 4; ++n) acc[h][n] = _mm512_dpbf16_ps(acc[h][n], query, value[n]);
    }
  }
  const auto mask = static_cast<__mmask8>((1u << (count < 4 ? count : 4)) - 1);
  for (int h = 0; h < kHeads; ++h) {
    _mm_mask_storeu_ps(scores + h * stride, mask, Sums(acc[h][0], acc[h][1], acc[h][2], acc[h][3]));
  }
}

template <int kHeads>
void ScoreHeads(const uint16_t* q, const uint16_t* const* rows, int64_t count, float* scores,
                int64_t stride) {
  for (int64_t n = 0; n < count; n += 4) {
    ScoreTile<kHeads>(q, rows + n, count - n, scores + n, stride);
  }
}

void ScoreRows(const uint16_t* q, int64_t heads, const uint16_t* const* rows, int64_t count,
               float* scores, int64_t stride) {
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
    const auto low = (__m512bh)_mm512_loadu_si512(panel + d * kPanelGroups);
    const auto high = (__m512bh)_mm512_loadu_si512(panel + d * kPanelGroups + 16);
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
