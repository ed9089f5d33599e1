// SPDX-License-Identifier: Apache-2.0
// The layout of key/value rows in the block pool, shared by lib/kv and the kernels.
//
// - Window rows: blocks of 64 tokens; one row of 512 elements per token and layer.
// - Compressed rows: blocks of 256 tokens; per ratio-4 layer 64 rows of 512 elements and 64 index
//   keys of 128 elements, per ratio-128 layer 2 rows of 512.
// - A block of one layer is planar: the data of all rows, the scales of all rows if the format has
//   scales, padding.
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
  // Rows of 512: 448 e4m3, then 64 bf16. Scales: a ue8m0 for each run of 64 e4m3, then a zero byte.
  // Stores the reference quantiser's values without loss.
  kPacked,
  // Rows of 512 e4m3, with the scale kFp8RowScale: rounded to nearest even, saturated at 448. A row
  // with a NaN or an infinity becomes all NaN (0x7f). Queries over such rows are rounded alike
  // (docs/adr/0028).
  kFp8PerTensor,
  // Rows of 128 e2m1, the even element in the low four bits. Scales: a ue8m0 for each run of 32.
  // Stores the reference quantiser's values without loss.
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

// Bytes of one layer's part of a block. A kPacked part is padded to a multiple of its 576-byte
// rows, so that a kernel can address the pool as one array of rows.
constexpr int64_t BlockBytes(RowFormat format, int64_t elements, int64_t rows_per_block) {
  const int64_t unit = format == RowFormat::kPacked ? RowDataBytes(format, elements) : 64;
  const int64_t bytes = rows_per_block * (RowDataBytes(format, elements) + RowScaleBytes(format));
  return (bytes + unit - 1) / unit * unit;
}

// One layer's rows of one kind in the pool. Offsets are 64-bit: block * stride can exceed 2^31.
struct RowPool {
  std::byte* base = nullptr;       // row 0 of this layer in block 0; 64-byte aligned
  int64_t block_stride_bytes = 0;  // from one block to the next
  int64_t row_bytes = 0;           // data of one row
  int64_t rows_per_block = 0;
  RowFormat format = RowFormat::kBf16;

  // A pool of contiguous blocks.
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

// The states of one compressor, one per state slot of the cache.
struct StatePool {
  std::byte* base = nullptr;      // of slot 0
  int64_t slot_stride_bytes = 0;  // from one slot to the next

  constexpr std::byte* Slot(int32_t slot) const { return base + int64_t{slot} * slot_stride_bytes; }
};

// Complete compressed blocks of `ratio` tokens that a query at `position` sees.
constexpr int64_t VisibleCompressedBlocks(int64_t position, int64_t ratio) {
  return (position + 1) / ratio;
}

// Floats of the state of one layer's compressor with rows of `dim` elements. The state is a list of
// online-softmax triples [3][dim]: running maximum, sum of weights, weighted sum.
// - Ratio 128: one triple, of the incomplete compressed block.
// - Ratio 4: three triples: part A of the previous complete block, then part A and part B of the
//   incomplete block.
// A triple is written as zeros and not read if its block has no tokens yet (position divisible by
// ratio) or does not exist (no previous block).
constexpr int64_t CompressorStateFloats(int64_t ratio, int64_t dim) {
  return (ratio == kCsaRatio ? 3 : 1) * 3 * dim;
}

}  // namespace dsv4
