// SPDX-License-Identifier: Apache-2.0
// The dot products of weights in block formats (lib/tensor/block_format.h). Of quantised formats,
// rows of activations are rounded to int8 (lib/tensor/int8_run.h), sums over 16 products are exact
// integers, and each is multiplied by the product of the two scales. Others are widened to f32.
//
// Order of a sum, the same for few rows and many (docs/adr/0035-numerics-of-gguf-files.md): f32
// lanes run along K, one chain of fused multiply-adds per lane from K = 0 up, then a fixed tree
// over the lanes. The minima are a sum of their own, in the same way, and are subtracted last; with
// AVX512-VNNI and AVX2 they are subtracted in the lane, behind its products. An output's bits
// depend on its activation row and its weight row alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/dot.h"
#include "lib/tensor/block_format.h"

namespace dsv4 {

// Rows are filled up with zeros to whole such pieces where AVX512-VNNI is.
inline constexpr int64_t kBlockRowElements = 256;
constexpr int64_t FilledElements(int64_t k) {
  return (k + kBlockRowElements - 1) / kBlockRowElements * kBlockRowElements;
}

// Bytes of an activation row of k elements as BlockDotKernels::pack leaves it: codes, a scale for
// each 16 (each twice), and the sum of each 16 codes times their scale.
constexpr int64_t PackedInt8Bytes(int64_t k) { return 2 * FilledElements(k); }

// Bytes of a weight row of k elements as BlockDotKernels::unpack leaves it: codes, a scale and a
// minimum (of formats that have them) for each 16, and what AVX512-VNNI adds
// (block_interleave_avx512-inl.h).
constexpr int64_t UnpackedBlockBytes(int64_t k) { return FilledElements(k) / 4 * 7; }

// K is a multiple of 128.
struct BlockDotKernels {
  const char* name;
  // Rounds one row of bf16 to int8.
  void (*pack)(const uint16_t* x, int64_t k, std::byte* packed);
  // out[i * ld + j] = a row i . w row j, for i < m, j < n; rows are PackedInt8Bytes and
  // UnpackedBlockBytes apart.
  void (*int8)(const std::byte* a, int64_t m, const std::byte* w, int64_t n, int64_t k,
               bool has_min, float* out, int64_t ld);
  // The products of bf16 rows and f32 weights, k apart.
  void (*f32)(const ActRows& a, int64_t m, const float* w, int64_t n, int64_t k, float* out,
              int64_t ld);
  // Products of few packed rows with n weight rows as the file has them, to the bits of unpack and
  // int8. `direct` gives the function for a type and K; null where there is none.
  using Direct = void (*)(const std::byte* a, int64_t m, const uint8_t* w, int64_t n, int64_t k,
                          float* out, int64_t ld);
  Direct (*direct)(BlockType type, int64_t k);
  // `f32` of few rows with weight rows of F16, to the bits of `load` and `f32`; null: there is
  // none.
  void (*f16)(const ActRows& a, int64_t m, const uint8_t* w, int64_t n, int64_t k, float* out,
              int64_t ld);
  // UnpackBlockRow, to the same values, interleaved if `interleaved` is not 0.
  void (*unpack)(BlockType type, const uint8_t* data, int64_t k, std::byte* unpacked);
  // LoadBlocks, to the same values.
  void (*load)(BlockType type, const uint8_t* data, int64_t k, float* values);
  // Elements of which runs lie in lanes of their own: 256 (block_interleave_avx512-inl.h), 128
  // (block_avx2.cc), or 0.
  int64_t interleaved = 0;
};

// The best for this processor, of the Highway targets in use and AllowDotExtensions.
const BlockDotKernels& ActiveBlockDotKernels();

// A weight row as codes, scales and minima, one after the other.
void UnpackBlockRow(BlockType type, const uint8_t* data, int64_t k, std::byte* unpacked);

#if defined(__x86_64__)
// `pack`, `int8`, `direct` and `unpack` for processors with AVX512-VNNI, and with AVX2.
void PackInt8Vnni(const uint16_t* x, int64_t k, std::byte* packed);
void DotInt8Vnni(const std::byte* a, int64_t m, const std::byte* w, int64_t n, int64_t k,
                 bool has_min, float* out, int64_t ld);
BlockDotKernels::Direct DirectVnni(BlockType type, int64_t k);
void UnpackBlockRowAvx512(BlockType type, const uint8_t* data, int64_t k, std::byte* unpacked);
void PackInt8Avx2(const uint16_t* x, int64_t k, std::byte* packed);
void DotInt8Avx2(const std::byte* a, int64_t m, const std::byte* w, int64_t n, int64_t k,
                 bool has_min, float* out, int64_t ld);
BlockDotKernels::Direct DirectAvx2(BlockType type, int64_t k);
void UnpackBlockRowAvx2(BlockType type, const uint8_t* data, int64_t k, std::byte* unpacked);
#endif

}  // namespace dsv4
