// SPDX-License-Identifier: Apache-2.0
// How key/value rows lie in the block pool: the one place that lib/kv and the kernels both read.
//
// Window rows: blocks of 64 tokens, one row of 512 elements per token and layer. Compressed rows:
// blocks of 256 tokens, which hold 64 rows of each ratio-4 layer, as many index keys of 128
// elements, and 2 rows of each ratio-128 layer. Rows are bf16 (published numerics) or f32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/tensor/dtype.h"

namespace dsv4 {

inline constexpr int64_t kKvRowElements = 512;  // one row is key and value at once
inline constexpr int64_t kKvRopeElements = 64;  // its last 64 carry RoPE
inline constexpr int64_t kKvQuantRun = 64;      // act_quant run of the first 448
inline constexpr int64_t kIndexKeyElements = 128;
inline constexpr int64_t kWindowTokens = 128;  // a query at t sees window rows t - 127 .. t
inline constexpr int64_t kWindowBlockTokens = 64;
inline constexpr int64_t kGroupBlockTokens = 256;
inline constexpr int64_t kCsaRatio = 4;
inline constexpr int64_t kHcaRatio = 128;
inline constexpr int32_t kNoBlock = -1;  // a block table entry without a block

// One layer's rows of one kind in the pool. Offsets are 64-bit: block * stride passes 2^31 early.
struct RowPool {
  std::byte* base = nullptr;       // row 0 of this layer in block 0
  int64_t block_stride_bytes = 0;  // from one block to the next
  int64_t row_bytes = 0;           // 512 or 128 elements

  std::byte* Row(int32_t block, int64_t slot) const {
    return base + int64_t{block} * block_stride_bytes + slot * row_bytes;
  }
};

// Complete groups of `ratio` tokens that a query at `position` sees.
constexpr int64_t VisibleGroups(int64_t position, int64_t ratio) { return (position + 1) / ratio; }

// Compressor state of one layer's compressor with rows of `dim` elements, in floats. It is a list
// of online-softmax triples [3][dim] (running maximum, sum of weights, weighted sum): one for ratio
// 128 (the unfinished group); three for ratio 4, in this order: part A of the previous complete
// group, part A and part B of the unfinished group. The triples of an unfinished group that is
// empty (position divisible by ratio), and of a previous group while there is none, are written as
// zeros and not read.
constexpr int64_t CompressorStateFloats(int64_t ratio, int64_t dim) {
  return (ratio == kCsaRatio ? 3 : 1) * 3 * dim;
}

}  // namespace dsv4
