// SPDX-License-Identifier: Apache-2.0
// Contracts of the dense operators: embedding rows and copies of rows, RMSNorm with quantiser, FP8
// and bf16 linears, and the grouped low-rank output projection.
//
// Weights in block formats (Fp8Weight::blocks, Bf16Weight::blocks): the input is not quantised.
// Published numerics round it in front of quantised formats as lib/tensor/int8_run.h says, and an
// embedding row to bf16. Exact and fp32 numerics round neither.
#pragma once

#include <array>

#include "kernels/op/launch_tensors.h"
#include "kernels/op/op.h"
#include "lib/tensor/quant_format.h"

namespace dsv4 {

// out[t, c, :] = embed[tokens[t], :] for c < copies (4 residual streams, or 1). Copies bits.
struct EmbedRowsParams {
  static constexpr Op kOp = Op::kEmbedRows;
  int32_t rows = 0;  // T
  int32_t copies = 1;
  // [T], each in [0, embed.n). A negative entry means chosen[-1 - entry], or token 0 if that is
  // negative, too.
  const int32_t* tokens = nullptr;
  Bf16Weight embed{};   // [vocab, D]
  void* out = nullptr;  // [T, copies, D] act
  // TokenCandidatesParams::chosen. May be null if no entry of tokens is negative.
  const int32_t* chosen = nullptr;

  constexpr int64_t TokenOf(int64_t row) const {
    const int32_t token = tokens[row];
    if (token >= 0) return token;
    const int32_t later = chosen[-1 - token];
    return later >= 0 ? later : 0;
  }
};

// to[r][0 .. row_bytes) = from[r][0 .. row_bytes): gathers or scatters rows of any type.
// REQUIRES: no destination overlaps a source or another destination.
struct CopyRowsParams {
  static constexpr Op kOp = Op::kCopyRows;
  int32_t rows = 0;
  int64_t row_bytes = 0;
  const std::byte* const* from = nullptr;  // [rows]
  std::byte* const* to = nullptr;          // [rows]
};

// normed = x * rsqrt(mean(x^2) + eps) * weight, in f32, rounded (kRoundRmsNorm).
// quantized = act_quant(normed, 128) round trip (kQuantLinearInput).
struct RmsNormParams {
  static constexpr Op kOp = Op::kRmsNorm;
  int32_t rows = 0;
  int64_t dim = 0;                   // a multiple of 128 where quantized is asked for
  const void* x = nullptr;           // [rows, dim] act
  const uint16_t* weight = nullptr;  // [dim] bf16
  float eps = 0;
  void* normed = nullptr;     // [rows, dim] act; may be null
  void* quantized = nullptr;  // [rows, dim] act; may be null
};

// y = x w^T, rounded (kRoundLinear), for up to three weights that share the input. x is already
// quantised. The product of the scales is applied to each sum over 128 of K. The order of the sums
// over K is the same for every M.
struct LinearFp8Params {
  static constexpr Op kOp = Op::kLinearFp8;
  struct Part {
    Fp8Weight w;        // [n, k]
    void* y = nullptr;  // [M, n] act
  };
  int32_t rows = 0;         // M
  int64_t k = 0;            // a multiple of 128
  const void* x = nullptr;  // [M, k] act, quantised
  int32_t part_count = 0;
  std::array<Part, 3> parts{};
};

// y = x w^T for up to five bf16 weights that share the input.
struct LinearBf16Params {
  static constexpr Op kOp = Op::kLinearBf16;
  struct Part {
    Bf16Weight w;       // [n, k]
    void* y = nullptr;  // [M, n]: act and rounded (kRoundLinear) when round_output, else f32
    bool round_output = false;
  };
  int32_t rows = 0;         // M
  int64_t k = 0;            // a multiple of 128
  const void* x = nullptr;  // [M, k] act, not quantised
  int32_t part_count = 0;
  std::array<Part, 5> parts{};
};

// y[t, g, :] = wo_a[g] . o[t, heads of group g], rounded (kRoundOutputGroups), then act_quant 128
// round trip (kQuantOutputGroups). The input is not quantised. The weight is dequantised to bf16
// before it is multiplied.
struct OutputGroupsParams {
  static constexpr Op kOp = Op::kOutputGroups;
  int32_t rows = 0;         // T
  int32_t groups = 0;       // G, local
  int64_t rank = 0;         // o_lora_rank, a multiple of 128
  int64_t group_width = 0;  // H * 512 / G
  Fp8Weight wo_a{};         // [G * rank, group_width]
  const void* o = nullptr;  // [T, G, group_width] act
  void* y = nullptr;        // [T, G * rank] act, quantised
  bool quantise = true;     // false: y is not quantised, for a wo_b in a block format
};

absl::Status Validate(const EmbedRowsParams& params);
absl::Status Validate(const CopyRowsParams& params);
absl::Status Validate(const RmsNormParams& params);
absl::Status Validate(const LinearFp8Params& params);
absl::Status Validate(const LinearBf16Params& params);
absl::Status Validate(const OutputGroupsParams& params);
Cost CostOf(const EmbedRowsParams& params);
Cost CostOf(const CopyRowsParams& params);
Cost CostOf(const RmsNormParams& params);
Cost CostOf(const LinearFp8Params& params);
Cost CostOf(const LinearBf16Params& params);
Cost CostOf(const OutputGroupsParams& params);
LaunchTensors TensorsOf(const EmbedRowsParams& params, Device& device);
LaunchTensors TensorsOf(const RmsNormParams& params, Device& device);
LaunchTensors TensorsOf(const LinearFp8Params& params, Device& device);
LaunchTensors TensorsOf(const LinearBf16Params& params, Device& device);
LaunchTensors TensorsOf(const OutputGroupsParams& params, Device& device);
CallDims DimsOf(const LinearFp8Params& params);     // rows, n of all parts, k
CallDims DimsOf(const LinearBf16Params& params);    // the same
CallDims DimsOf(const OutputGroupsParams& params);  // rows, n of all groups, k of one

}  // namespace dsv4
