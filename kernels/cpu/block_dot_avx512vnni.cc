// SPDX-License-Identifier: Apache-2.0
// The int8 dot products for processors with AVX512-VNNI, by intrinsics, in interleaved rows
// (block_interleave_avx512-inl.h). vpdpbusd multiplies an unsigned by a signed byte: activations
// are stored with 128 added, and sums begin at what that adds. Compiled with these instruction
// sets; nothing here may run before block_dot.cc has asked the processor.
#include <immintrin.h>

#include "kernels/cpu/block_dot.h"
#include "kernels/cpu/block_interleave_avx512-inl.h"
#include "lib/tensor/int8_run.h"

namespace dsv4 {
namespace {

template <int kRows, int kCols, bool kHasMin>
inline void Tile(const std::byte* a, const std::byte* w, int64_t k, float* out, int64_t ld) {
  const InterleavedRow at(k);
  const int64_t a_stride = PackedInt8Bytes(k), w_stride = UnpackedBlockBytes(k);
  __m512 acc[kRows][kCols];
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kCols; ++j) acc[i][j] = _mm512_setzero_ps();
  }
  for (int64_t p = 0; p < at.elements; p += kInterleaved) {
    __m512i sum[kRows][kCols];
    for (int j = 0; j < kCols; ++j) {
      const __m512i begin = _mm512_loadu_si512(w + j * w_stride + at.Begin(p));
      for (int i = 0; i < kRows; ++i) sum[i][j] = begin;
    }
    for (int part = 0; part < kInterleavedParts; ++part) {
      __m512i v[kCols];
      for (int j = 0; j < kCols; ++j) v[j] = _mm512_loadu_si512(w + j * w_stride + p + 64 * part);
      for (int i = 0; i < kRows; ++i) {
        const __m512i x = _mm512_loadu_si512(a + i * a_stride + p + 64 * part);
        for (int j = 0; j < kCols; ++j) sum[i][j] = _mm512_dpbusd_epi32(sum[i][j], x, v[j]);
      }
    }
    for (int i = 0; i < kRows; ++i) {
      const __m512 x_scale = _mm512_loadu_ps(a + i * a_stride + at.Scale(p));
      for (int j = 0; j < kCols; ++j) {
        const __m512 scale =
            _mm512_mul_ps(_mm512_loadu_ps(w + j * w_stride + at.Scale(p)), x_scale);
        acc[i][j] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[i][j]), scale, acc[i][j]);
        if constexpr (kHasMin) {
          acc[i][j] = _mm512_fnmadd_ps(_mm512_loadu_ps(w + j * w_stride + at.Min(p)),
                                       _mm512_loadu_ps(a + i * a_stride + at.Min(p)), acc[i][j]);
        }
      }
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kCols; ++j) out[i * ld + j] = _mm512_reduce_add_ps(acc[i][j]);
  }
}

template <int kCols, bool kHasMin>
void Rows(const std::byte* a, int64_t m, const std::byte* w, int64_t k, float* out, int64_t ld) {
  int64_t i = 0;
  const auto at = [&](int64_t row) { return a + row * PackedInt8Bytes(k); };
  for (; i + 6 <= m; i += 6) Tile<6, kCols, kHasMin>(at(i), w, k, out + i * ld, ld);
  if (i + 4 <= m) {
    Tile<4, kCols, kHasMin>(at(i), w, k, out + i * ld, ld);
    i += 4;
  }
  if (i + 2 <= m) {
    Tile<2, kCols, kHasMin>(at(i), w, k, out + i * ld, ld);
    i += 2;
  }
  if (i < m) Tile<1, kCols, kHasMin>(at(i), w, k, out + i * ld, ld);
}

template <bool kHasMin>
void Dot(const std::byte* a, int64_t m, const std::byte* w, int64_t n, int64_t k, float* out,
         int64_t ld) {
  int64_t j = 0;
  for (; j + 2 <= n; j += 2) {
    Rows<2, kHasMin>(a, m, w + j * UnpackedBlockBytes(k), k, out + j, ld);
  }
  if (j < n) Rows<1, kHasMin>(a, m, w + j * UnpackedBlockBytes(k), k, out + j, ld);
}

}  // namespace

void PackInt8Vnni(const uint16_t* x, int64_t k, std::byte* packed) {
  const InterleavedRow at(k);
  const __m512i offset = _mm512_set1_epi8(static_cast<char>(128));
  for (int64_t p = 0; p < at.elements; p += kInterleaved) {
    alignas(64) int8_t codes[kInterleaved] = {};
    alignas(64) float scales[kInterleaved / kBlockRun] = {};
    const int64_t end = k - p < kInterleaved ? k - p : kInterleaved;
    for (int64_t i = 0; i < end; i += kInt8Run) {
      const __m512 v[2] = {LoadBf16(x + p + i), LoadBf16(x + p + i + kBlockRun)};
      const Int8Scale scale(
          _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(v[0]), _mm512_abs_ps(v[1]))));
      const __m512 inverse = _mm512_set1_ps(scale.inverse);
      for (int64_t half = 0; half < 2; ++half) {
        const __m512i code = _mm512_cvtps_epi32(_mm512_mul_ps(v[half], inverse));
        _mm_store_si128(reinterpret_cast<__m128i*>(codes + i + half * kBlockRun),
                        _mm512_cvtsepi32_epi8(code));
        scales[i / kBlockRun + half] = scale.scale;
      }
    }
    __m512i parts[kInterleavedParts], sum = _mm512_setzero_si512();
    for (int part = 0; part < kInterleavedParts; ++part) {
      parts[part] = _mm512_load_si512(codes + 64 * part);
    }
    Interleave(parts);
    for (int part = 0; part < kInterleavedParts; ++part) {
      sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(1), parts[part]);
      _mm512_storeu_si512(packed + p + 64 * part, _mm512_xor_si512(parts[part], offset));
    }
    const __m512 scale = InterleavedRuns(_mm512_load_ps(scales));
    _mm512_storeu_ps(packed + at.Scale(p), scale);
    _mm512_storeu_ps(packed + at.Min(p), _mm512_mul_ps(scale, _mm512_cvtepi32_ps(sum)));
  }
}

void DotInt8Vnni(const std::byte* a, int64_t m, const std::byte* w, int64_t n, int64_t k,
                 bool has_min, float* out, int64_t ld) {
  has_min ? Dot<true>(a, m, w, n, k, out, ld) : Dot<false>(a, m, w, n, k, out, ld);
}

}  // namespace dsv4
