// SPDX-License-Identifier: Apache-2.0
// How key/value rows lie in the block pool: the one place that lib/kv and the kernels both read.
//
// Window rows: blocks of 64 tokens, one row of 512 elements per token and layer. Compressed rows:
// blocks of 256 tokens, which hold 64 rows of each ratio-4 layer, as many index keys of 128
// elements, and 2 rows of each ratio-128 layer. A block of one layer is planar: first the data of
// all its rows, then their scales where the format has them, then padding.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dsv4 {

inline constexpr int64_t kKvRowElements = 512;  // one row is key and value at once
inline constexpr int64_t kKvRopeElements = 64;  // its last 64 carry RoPE
inline constexpr int64_t kKvQuantRun = 64;      // act_quant run of the first 448
inline constexpr int64_t kIndexKeyElements = 128;
inline constexpr int64_t kWindowTokens = 128;  // a query at t sees window rows t - 127 .. t
inline constexpr int64_t kWindowBlockTokens = 64;
inline constexpr int64_t kCompressedKvBlockTokens = 256;
inline constexpr int64_t kCsaRatio = 4;
inline constexpr int64_t kHcaRatio = 128;
inline constexpr int32_t kNoBlock = -1;  // a block table entry without a block

// How the elements of a row are stored. A ue8m0 byte s means 2^(s - 127).
enum class RowFormat : int32_t {
  kBf16,
  kF32,
  // Rows of 512: 448 e4m3, then 64 bf16; scales: a ue8m0 for each run of 64 of the e4m3, then a
  // zero byte. The published quantiser's values, exactly.
  kPacked,
  // Rows of 512: e4m3, times kFp8RowScale, rounded to nearest even, at most 448; a row that holds a
  // NaN or an infinity is all NaN (0x7f). Queries that meet such rows are such numbers, too
  // (docs/adr/0028).
  kFp8PerTensor,
  // Rows of 128: e2m1, the even element in the low four bits; scales: a ue8m0 for each run of 32.
  // The published quantiser's values, exactly.
  kIndexFp4,
};

// The one scale of kFp8PerTensor, of keys, values and queries.
inline constexpr float kFp8RowScale = 1;

constexpr const char* RowFormatName(RowFormat format) {
  switch (format) {
    case RowFormat::kBf16:
      return "bf16";
    case RowFormat::kF32:
      return "f32";
    case RowFormat::kPacked:
      return "packed";
    case RowFormat::kFp8PerTensor:
      return "fp8_per_tensor";
    case RowFormat::kIndexFp4:
      return "index_fp4";
  }
  return "unknown";
}

// Bytes of a row's data, and of its scales.
constexpr int64_t RowDataBytes(RowFormat format, int64_t elements) {
  switch (format) {
    case RowFormat::kBf16:
      return elements * 2;
    case RowFormat::kF32:
      return elements * 4;
    case RowFormat::kPacked:
      return elements + kKvRopeElements;
    case RowFormat::kFp8PerTensor:
      return elements;
    case RowFormat::kIndexFp4:
      return elements / 2;
  }
  return 0;
}
constexpr int64_t RowScaleBytes(RowFormat format) {
  return format == RowFormat::kPacked ? 8 : format == RowFormat::kIndexFp4 ? 4 : 0;
}

// Bytes of one layer's part of a block. A packed one is a whole number of rows of 576 bytes, so
// that a pool can be read as one array of them.
constexpr int64_t BlockBytes(RowFormat format, int64_t elements, int64_t rows_per_block) {
  const int64_t unit = format == RowFormat::kPacked ? RowDataBytes(format, elements) : 64;
  const int64_t bytes = rows_per_block * (RowDataBytes(format, elements) + RowScaleBytes(format));
  return (bytes + unit - 1) / unit * unit;
}

// One layer's rows of one kind in the pool. Offsets are 64-bit: block * stride passes 2^31 early.
struct RowPool {
  std::byte* base = nullptr;       // row 0 of this layer in block 0; 64-byte aligned
  int64_t block_stride_bytes = 0;  // from one block to the next
  int64_t row_bytes = 0;           // data of one row
  int64_t rows_per_block = 0;
  RowFormat format = RowFormat::kBf16;

  // Blocks that follow each other without a gap.
  static constexpr RowPool Of(std::byte* base, RowFormat format, int64_t elements,
                              int64_t rows_per_block) {
    return {.base = base,
            .block_stride_bytes = BlockBytes(format, elements, rows_per_block),
            .row_bytes = RowDataBytes(format, elements),
            .rows_per_block = rows_per_block,
            .format = format};
  }

  constexpr std::byte* Row(int32_t block, int64_t slot) const {
    return base + int64_t{block} * block_stride_bytes + slot * row_bytes;
  }
  constexpr std::byte* Scales(int32_t block, int64_t slot) const {
    return base + int64_t{block} * block_stride_bytes + rows_per_block * row_bytes +
           slot * RowScaleBytes(format);
  }
};

// One compressor's states, one in each state slot of the cache.
struct StatePool {
  std::byte* base = nullptr;      // of slot 0
  int64_t slot_stride_bytes = 0;  // from one slot to the next

  constexpr std::byte* Slot(int32_t slot) const { return base + int64_t{slot} * slot_stride_bytes; }
};

// Complete compressed blocks of `ratio` tokens that a query at `position` sees.
constexpr int64_t VisibleCompressedBlocks(int64_t position, int64_t ratio) {
  return (position + 1) / ratio;
}

// Compressor state of one layer's compressor with rows of `dim` elements, in floats. It is a list
// of online-softmax triples [3][dim] (running maximum, sum of weights, weighted sum): one for ratio
// 128 (the incomplete compressed block); three for ratio 4, in this order: part A of the previous
// complete block, part A and part B of the incomplete block. The triples of an incomplete block
// without tokens (position divisible by ratio), and of a previous block while there is none, are
// written as zeros and not read.
constexpr int64_t CompressorStateFloats(int64_t ratio, int64_t dim) {
  return (ratio == kCsaRatio ? 3 : 1) * 3 * dim;
}

}  // namespace dsv4
