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

// kFp8F32: FP8 with F32 scales.
enum class WeightFormat : int32_t { kFp8, kFp8F32, kFp4, kNvfp4, kBf16 };

const char* WeightFormatName(WeightFormat format);  // "fp8", "fp8_f32", "fp4", "nvfp4", "bf16"

// The rows of a packed weight are padded with zeros to a multiple of this.
inline constexpr int64_t kPackedRows = 16;
// A call's row_begin is a multiple of this.
inline constexpr int64_t kPackRowBlock = 128;

struct WeightBytes {
  int64_t data = 0, scale = 0;
};

// Bytes of `n` rows in the checkpoint's layout.
constexpr WeightBytes StoredWeightBytes(WeightFormat format, int64_t n, int64_t k) {
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
  }
  return {};
}

// Bytes of the whole packed weight. Data and scales need 16-byte alignment.
constexpr WeightBytes PackedWeightBytes(WeightFormat format, int64_t n, int64_t k) {
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
  int64_t k = 0;          // a multiple of 128
  int64_t row_begin = 0;  // a multiple of 128
  int64_t rows = 0;       // a multiple of 128, or up to n
  const std::byte* src_data = nullptr;
  const uint8_t* src_scale = nullptr;  // null with kBf16
  std::byte* dst_data = nullptr;
  uint8_t* dst_scale = nullptr;  // null with kBf16
};

absl::Status Validate(const PackWeightParams& params);
Cost CostOf(const PackWeightParams& params);

}  // namespace dsv4
