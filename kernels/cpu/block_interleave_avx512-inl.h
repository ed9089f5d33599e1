// SPDX-License-Identifier: Apache-2.0
// How rows of codes lie for AVX512-VNNI: in each 256 elements a lane of 32 bits has four
// consecutive elements, and the four vectors that follow one another have the 16 elements of a run
// in one lane. Four vpdpbusd thus add a run, and its scale is applied once. Rows are filled up to
// whole 256 elements with zeros.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/block_dot.h"

namespace dsv4 {
namespace {

constexpr int64_t kInterleaved = kBlockRowElements;
constexpr int kInterleavedParts = 4;

// Where a row of k elements has the numbers of its elements from p on, a multiple of 256. Codes are
// at p. All but codes are 16 numbers of 32 bits, in the order of InterleavedRuns.
struct InterleavedRow {
  int64_t elements;

  explicit InterleavedRow(int64_t k) : elements(FilledElements(k)) {}
  int64_t Scale(int64_t p) const { return elements + p / 4; }
  // Of weights the minima, of activations the sums of codes times their scale.
  int64_t Min(int64_t p) const { return elements + elements / 4 + p / 4; }
  // Of weights: -128 times the sums of codes.
  int64_t Begin(int64_t p) const { return elements + elements / 2 + p / 4; }
};

inline __m512 LoadBf16(const uint16_t* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

// Four vectors of 64 consecutive elements each: then lane 4 l + i of vector t has elements
// 4 t to 4 t + 3 of run 4 i + l.
inline void Interleave(__m512i v[4]) {
  const __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpacklo_epi32(v[2], v[3]);
  const __m512i c = _mm512_unpackhi_epi32(v[0], v[1]), d = _mm512_unpackhi_epi32(v[2], v[3]);
  v[0] = _mm512_unpacklo_epi64(a, b);
  v[1] = _mm512_unpackhi_epi64(a, b);
  v[2] = _mm512_unpacklo_epi64(c, d);
  v[3] = _mm512_unpackhi_epi64(c, d);
}

// The numbers of 16 runs in the order of Interleave's lanes.
inline __m512 InterleavedRuns(__m512 v) {
  return _mm512_permutexvar_ps(
      _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), v);
}

// At what sums with activations begin that have 128 added, for interleaved codes.
inline __m512i SumsBegin(const __m512i v[4]) {
  __m512i sum = _mm512_setzero_si512();
  for (int part = 0; part < kInterleavedParts; ++part) {
    sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(static_cast<char>(128)), v[part]);
  }
  return _mm512_sub_epi32(_mm512_setzero_si512(), sum);
}

}  // namespace
}  // namespace dsv4
