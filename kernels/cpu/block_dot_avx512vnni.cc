// SPDX-License-Identifier: Apache-2.0
// The int8 dot products for processors with AVX512-VNNI, by intrinsics. vpdpbusd multiplies an
// unsigned by a signed byte: activations are stored with 128 added, and 128 times the sum of the
// weights, which the same instruction gives, is subtracted. A vector has four runs of 16.
// Compiled with these instruction sets; nothing here may run before block_dot.cc has asked the
// processor.
#include <immintrin.h>

#include "kernels/cpu/block_dot.h"
#include "lib/tensor/int8_run.h"

namespace dsv4 {
namespace {

constexpr int64_t kStep = 64;  // elements of K per vector

inline __m512 LoadBf16(const uint16_t* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

// Four scales, each in four lanes.
inline __m512 LoadScales(const float* p) {
  const __m512i each = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
  return _mm512_permutexvar_ps(each, _mm512_castps128_ps512(_mm_loadu_ps(p)));
}

template <int kRows, int kCols>
inline void Tile(const std::byte* a, const std::byte* w, int64_t k, bool has_min, float* out,
                 int64_t ld) {
  const int64_t runs = k / kBlockRun;
  const __m512i offset = _mm512_set1_epi8(static_cast<char>(128));
  __m512 acc[kRows][kCols];
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kCols; ++j) acc[i][j] = _mm512_setzero_ps();
  }
  for (int64_t p = 0; p < k; p += kStep) {
    const int64_t scale_at = k + p / kBlockRun * static_cast<int64_t>(sizeof(float));
    __m512i v[kCols], minus[kCols];
    __m512 scale[kCols];
    for (int j = 0; j < kCols; ++j) {
      const std::byte* const row = w + j * UnpackedBlockBytes(k);
      v[j] = _mm512_loadu_si512(row + p);
      minus[j] = _mm512_sub_epi32(_mm512_setzero_si512(),
                                  _mm512_dpbusd_epi32(_mm512_setzero_si512(), offset, v[j]));
      scale[j] = LoadScales(reinterpret_cast<const float*>(row + scale_at));
    }
    for (int i = 0; i < kRows; ++i) {
      const std::byte* const row = a + i * PackedInt8Bytes(k);
      const __m512i x = _mm512_loadu_si512(row + p);
      const __m512 x_scale = LoadScales(reinterpret_cast<const float*>(row + scale_at));
      for (int j = 0; j < kCols; ++j) {
        const __m512 sum = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(minus[j], x, v[j]));
        acc[i][j] = _mm512_fmadd_ps(sum, _mm512_mul_ps(scale[j], x_scale), acc[i][j]);
      }
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kCols; ++j) {
      float sum = _mm512_reduce_add_ps(acc[i][j]);
      if (has_min) {
        const auto* min = reinterpret_cast<const float*>(w + j * UnpackedBlockBytes(k) + k) + runs;
        const auto* sums = reinterpret_cast<const float*>(a + i * PackedInt8Bytes(k) + k) + runs;
        __m256 total = _mm256_setzero_ps();
        for (int64_t r = 0; r < runs; r += 8) {
          total = _mm256_fmadd_ps(_mm256_loadu_ps(min + r), _mm256_loadu_ps(sums + r), total);
        }
        sum -= _mm512_reduce_add_ps(_mm512_zextps256_ps512(total));
      }
      out[i * ld + j] = sum;
    }
  }
}

template <int kCols>
void Rows(const std::byte* a, int64_t m, const std::byte* w, int64_t k, bool has_min, float* out,
          int64_t ld) {
  int64_t i = 0;
  const auto at = [&](int64_t row) { return a + row * PackedInt8Bytes(k); };
  for (; i + 4 <= m; i += 4) Tile<4, kCols>(at(i), w, k, has_min, out + i * ld, ld);
  if (i + 2 <= m) {
    Tile<2, kCols>(at(i), w, k, has_min, out + i * ld, ld);
    i += 2;
  }
  if (i < m) Tile<1, kCols>(at(i), w, k, has_min, out + i * ld, ld);
}

}  // namespace

void PackInt8Vnni(const uint16_t* x, int64_t k, std::byte* packed) {
  float* const scales = reinterpret_cast<float*>(packed + k);
  float* const sums = scales + k / kBlockRun;
  for (int64_t begin = 0; begin < k; begin += kInt8Run) {
    const __m512 v[2] = {LoadBf16(x + begin), LoadBf16(x + begin + kBlockRun)};
    const Int8Scale scale(
        _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(v[0]), _mm512_abs_ps(v[1]))));
    for (int64_t half = 0; half < 2; ++half) {
      const __m512i code =
          _mm512_cvtps_epi32(_mm512_mul_ps(v[half], _mm512_set1_ps(scale.inverse)));
      const __m128i bytes = _mm512_cvtsepi32_epi8(code);
      const int64_t run = begin / kBlockRun + half;
      _mm_storeu_si128(reinterpret_cast<__m128i*>(packed + run * kBlockRun),
                       _mm_xor_si128(bytes, _mm_set1_epi8(static_cast<char>(128))));
      scales[run] = scale.scale;
      sums[run] =
          scale.scale * static_cast<float>(_mm512_reduce_add_epi32(_mm512_cvtepi8_epi32(bytes)));
    }
  }
}

void DotInt8Vnni(const std::byte* a, int64_t m, const std::byte* w, int64_t n, int64_t k,
                 bool has_min, float* out, int64_t ld) {
  int64_t j = 0;
  for (; j + 4 <= n; j += 4) {
    Rows<4>(a, m, w + j * UnpackedBlockBytes(k), k, has_min, out + j, ld);
  }
  for (; j < n; ++j) Rows<1>(a, m, w + j * UnpackedBlockBytes(k), k, has_min, out + j, ld);
}

}  // namespace dsv4
