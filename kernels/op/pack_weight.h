// SPDX-License-Identifier: Apache-2.0
// Contract of pack_weight: converts a weight from the checkpoint's row-major layout into the layout
// that a backend's matrix operators read, once, at load. The views of quant_format.h then point to
// packed memory and keep their n and k. A backend that reads row-major weights has no pack_weight.
#pragma once

#include <cstddef>

#include "kernels/op/op.h"
#include "lib/base/checked_math.h"
#include "lib/tensor/quant_format.h"

namespace dsv4 {

// kFp8F32: FP8 with F32 scales. From kBlocks on: the block formats, in the order of BlockType.
enum class WeightFormat : int32_t { kFp8, kFp8F32, kFp4, kNvfp4, kBf16, kBlocks };

constexpr WeightFormat BlocksFormat(BlockType type) {
  return static_cast<WeightFormat>(static_cast<int32_t>(WeightFormat::kBlocks) +
                                   static_cast<int32_t>(type));
}
// kNone of formats that are not block formats.
constexpr BlockType BlockTypeOf(WeightFormat format) {
  return format < WeightFormat::kBlocks
             ? BlockType::kNone
             : static_cast<BlockType>(static_cast<int32_t>(format) -
                                      static_cast<int32_t>(WeightFormat::kBlocks));
}
constexpr bool InBlocks(WeightFormat format) { return BlockTypeOf(format) != BlockType::kNone; }

// "fp8", "fp8_f32", "fp4", "nvfp4", "bf16", or the block format's name.
const char* WeightFormatName(WeightFormat format);

// The rows of a packed weight, but of one in a block format, are padded with zeros to a multiple of
// this.
inline constexpr int64_t kPackedRows = 16;
// A call's row_begin is a multiple of this.
inline constexpr int64_t kPackRowBlock = 128;

struct WeightBytes {
  int64_t data = 0, scale = 0;
};

// Bytes of `n` rows in the checkpoint's layout.
inline WeightBytes StoredWeightBytes(WeightFormat format, int64_t n, int64_t k) {
  if (InBlocks(format)) return {n * BlockBytes(BlockTypeOf(format), k), 0};
  switch (format) {
    case WeightFormat::kFp8:
      return {n * k, CeilDiv(n, kFp8Block) * CeilDiv(k, kFp8Block)};
    case WeightFormat::kFp8F32:
      return {n * k, CeilDiv(n, kFp8Block) * CeilDiv(k, kFp8Block) * int64_t{sizeof(float)}};
    case WeightFormat::kFp4:
      return {n * k / 2, n * k / kFp4Run};
    case WeightFormat::kNvfp4:
      return {n * k / 2, n * k / kNvfp4Run};
    case WeightFormat::kBf16:
      return {n * k * 2, 0};
    case WeightFormat::kBlocks:
      break;
  }
  return {};
}

// Bytes of the whole packed weight. Data and scales need 16-byte alignment.
// Block formats have room to align the fields of their blocks, which lie apart, and no padding
// rows.
inline constexpr int64_t kBlockFieldRoom = 80;
inline WeightBytes PackedWeightBytes(WeightFormat format, int64_t n, int64_t k) {
  if (InBlocks(format)) return {StoredWeightBytes(format, n, k).data + kBlockFieldRoom, 0};
  return StoredWeightBytes(format, RoundUp(n, kPackedRows), k);
}

// Packs rows [row_begin, row_begin + rows) of the weight [n, k]. Calls of one weight cover all of
// its rows, in any order.
// - src_*: these rows and their scales, in the layout of quant_format.h.
// - dst_*: the whole packed weight. REQUIRES: does not overlap src_*.
struct PackWeightParams {
  static constexpr Op kOp = Op::kPackWeight;
  WeightFormat format = WeightFormat::kFp8;
  int64_t n = 0;
  int64_t k = 0;          // a multiple of 128, and of the block format's elements
  int64_t row_begin = 0;  // a multiple of 128
  int64_t rows = 0;       // a multiple of 128, or up to n
  const std::byte* src_data = nullptr;
  const uint8_t* src_scale = nullptr;  // null with kBf16 and in blocks
  std::byte* dst_data = nullptr;
  uint8_t* dst_scale = nullptr;  // the same
};

absl::Status Validate(const PackWeightParams& params);
Cost CostOf(const PackWeightParams& params);

}  // namespace dsv4
