// SPDX-License-Identifier: Apache-2.0
#include "kernels/op/pack_weight.h"

namespace dsv4 {

const char* WeightFormatName(WeightFormat format) {
  if (InBlocks(format)) return InfoOf(BlockTypeOf(format)).name;
  switch (format) {
    case WeightFormat::kFp8:
      return "fp8";
    case WeightFormat::kFp8F32:
      return "fp8_f32";
    case WeightFormat::kFp4:
      return "fp4";
    case WeightFormat::kNvfp4:
      return "nvfp4";
    case WeightFormat::kBf16:
      return "bf16";
    case WeightFormat::kBlocks:
      break;
  }
  return "unknown";
}

absl::Status Validate(const PackWeightParams& p) {
  const bool scaled = p.format < WeightFormat::kBf16;
  const int64_t elements = InBlocks(p.format) ? InfoOf(BlockTypeOf(p.format)).elements : 1;
  return Expect(p.format != WeightFormat::kBlocks && p.n >= 1 && p.k >= 1 && p.k % kFp8Block == 0 &&
                    p.k % elements == 0 && p.row_begin >= 0 && p.rows >= 1 &&
                    p.row_begin % kPackRowBlock == 0 && p.row_begin + p.rows <= p.n &&
                    (p.rows % kPackRowBlock == 0 || p.row_begin + p.rows == p.n) &&
                    p.src_data != nullptr && p.dst_data != nullptr &&
                    (!scaled || (p.src_scale != nullptr && p.dst_scale != nullptr)),
                "pack_weight: ", WeightFormatName(p.format), " [", p.n, ", ", p.k, "], rows ",
                p.row_begin, " + ", p.rows, " or a null pointer");
}

Cost CostOf(const PackWeightParams& p) {
  const WeightBytes stored = StoredWeightBytes(p.format, p.rows, p.k);
  return {.bytes = 2 * (stored.data + stored.scale), .flops = 0};
}

}  // namespace dsv4
