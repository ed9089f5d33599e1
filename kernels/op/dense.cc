// SPDX-License-Identifier: Apache-2.0
#include "kernels/op/dense.h"

#include <algorithm>

#include "lib/base/checked_math.h"
#include "lib/base/status_macros.h"

namespace dsv4 {
namespace {

int64_t Fp8Bytes(const Fp8Weight& w) {
  if (w.in_blocks()) return w.n * BlockBytes(w.blocks, w.k);
  return w.n * w.k + CeilDiv(w.n, kFp8Block) * CeilDiv(w.k, kFp8Block);
}

int64_t Bf16Bytes(const Bf16Weight& w) {
  return w.in_blocks() ? w.n * BlockBytes(w.blocks, w.k) : w.n * w.k * 2;
}

bool HasScales(const Fp8Weight& w) {
  return w.in_blocks() || w.scale != nullptr || w.f32_scale != nullptr;
}

template <class Params>
CallDims DimsOfParts(const Params& p) {
  int64_t n = 0;
  for (int i = 0; i < p.part_count; ++i) n += p.parts[i].w.n;
  return {{"rows", p.rows}, {"n", n}, {"k", p.k}};
}

}  // namespace

absl::Status Validate(const EmbedRowsParams& p) {
  return Expect(p.rows >= 1 && (p.copies == 1 || p.copies == 4) && p.tokens != nullptr &&
                    p.embed.data != nullptr && p.out != nullptr,
                "embed_rows: rows ", p.rows, ", copies ", p.copies, " or a null pointer");
}

Cost CostOf(const EmbedRowsParams& p) {
  return {.bytes = int64_t{p.rows} * p.embed.k * kActBytes * (1 + p.copies), .flops = 0};
}

LaunchTensors TensorsOf(const EmbedRowsParams& p, Device&) {
  return {{},
          {{"out", OutputFormat::kBf16, LaunchTensor::Act(p.out, p.rows, p.copies * p.embed.k)}}};
}

absl::Status Validate(const CopyRowsParams& p) {
  return Expect(p.rows >= 1 && p.row_bytes >= 1 && p.from != nullptr && p.to != nullptr,
                "copy_rows: rows ", p.rows, ", bytes ", p.row_bytes, " or a null pointer");
}

Cost CostOf(const CopyRowsParams& p) { return {.bytes = 2 * p.rows * p.row_bytes, .flops = 0}; }

absl::Status Validate(const RmsNormParams& p) {
  return Expect(p.rows >= 1 && p.dim >= 1 && (p.quantized == nullptr || p.dim % kFp8Block == 0) &&
                    p.x != nullptr && p.weight != nullptr &&
                    (p.normed != nullptr || p.quantized != nullptr),
                "rms_norm: rows ", p.rows, ", dim ", p.dim, " or a null pointer");
}

Cost CostOf(const RmsNormParams& p) {
  const int64_t values = int64_t{p.rows} * p.dim;
  const int64_t outputs = (p.normed != nullptr) + (p.quantized != nullptr);
  return {.bytes = values * kActBytes * (1 + outputs), .flops = values * 4};
}

LaunchTensors TensorsOf(const RmsNormParams& p, Device&) {
  return {
      {LaunchTensor::Act(p.x, p.rows, p.dim)},
      {{"normed", OutputFormat::kBf16, LaunchTensor::Act(p.normed, p.rows, p.dim)},
       {"quantized", OutputFormat::kCodes, LaunchTensor::Quantized(p.quantized, p.rows, p.dim)}}};
}

absl::Status Validate(const LinearFp8Params& p) {
  DSV4_RETURN_IF_ERROR(Expect(
      p.rows >= 1 && p.k >= 1 && p.k % kFp8Block == 0 && p.x != nullptr && p.part_count >= 1 &&
          p.part_count <= static_cast<int>(p.parts.size()),
      "linear_fp8: rows ", p.rows, ", k ", p.k, ", parts ", p.part_count, " or a null input"));
  for (int i = 0; i < p.part_count; ++i) {
    const LinearFp8Params::Part& part = p.parts[i];
    DSV4_RETURN_IF_ERROR(Expect(part.w.n >= 1 && part.w.k == p.k && part.w.data != nullptr &&
                                    HasScales(part.w) && part.y != nullptr,
                                "linear_fp8: part ", i, " is [", part.w.n, ", ", part.w.k,
                                "], input width ", p.k, ", or a null pointer"));
  }
  return absl::OkStatus();
}

Cost CostOf(const LinearFp8Params& p) {
  Cost cost{.bytes = int64_t{p.rows} * p.k * kActBytes, .flops = 0};
  for (int i = 0; i < p.part_count; ++i) {
    const Fp8Weight& w = p.parts[i].w;
    cost.bytes += Fp8Bytes(w) + int64_t{p.rows} * w.n * kActBytes;
    cost.flops += 2 * int64_t{p.rows} * w.n * w.k;
  }
  return cost;
}

LaunchTensors TensorsOf(const LinearFp8Params& p, Device&) {
  LaunchTensors all{{p.parts[0].w.in_blocks() ? LaunchTensor::Act(p.x, p.rows, p.k)
                                              : LaunchTensor::Quantized(p.x, p.rows, p.k)},
                    {}};
  for (int32_t i = 0; i < p.part_count; ++i) {
    all.out.push_back(
        {"y", OutputFormat::kBf16, LaunchTensor::Act(p.parts[i].y, p.rows, p.parts[i].w.n)});
  }
  return all;
}

CallDims DimsOf(const LinearFp8Params& p) { return DimsOfParts(p); }

absl::Status Validate(const LinearBf16Params& p) {
  DSV4_RETURN_IF_ERROR(Expect(
      p.rows >= 1 && p.k >= 1 && p.k % kFp8Block == 0 && p.x != nullptr && p.part_count >= 1 &&
          p.part_count <= static_cast<int>(p.parts.size()),
      "linear_bf16: rows ", p.rows, ", k ", p.k, ", parts ", p.part_count, " or a null input"));
  for (int i = 0; i < p.part_count; ++i) {
    const LinearBf16Params::Part& part = p.parts[i];
    DSV4_RETURN_IF_ERROR(
        Expect(part.w.n >= 1 && part.w.k == p.k && part.w.data != nullptr && part.y != nullptr,
               "linear_bf16: part ", i, " is [", part.w.n, ", ", part.w.k, "], input width ", p.k,
               ", or a null pointer"));
  }
  return absl::OkStatus();
}

Cost CostOf(const LinearBf16Params& p) {
  Cost cost{.bytes = int64_t{p.rows} * p.k * kActBytes, .flops = 0};
  for (int i = 0; i < p.part_count; ++i) {
    const LinearBf16Params::Part& part = p.parts[i];
    cost.bytes +=
        Bf16Bytes(part.w) + int64_t{p.rows} * part.w.n * (part.round_output ? kActBytes : 4);
    cost.flops += 2 * int64_t{p.rows} * part.w.n * part.w.k;
  }
  return cost;
}

LaunchTensors TensorsOf(const LinearBf16Params& p, Device&) {
  LaunchTensors all{{LaunchTensor::Act(p.x, p.rows, p.k)}, {}};
  for (int32_t i = 0; i < p.part_count; ++i) {
    const LinearBf16Params::Part& part = p.parts[i];
    if (part.round_output) {
      all.out.push_back({"y", OutputFormat::kBf16, LaunchTensor::Act(part.y, p.rows, part.w.n)});
    } else {
      const auto* y = static_cast<const float*>(part.y);
      all.out.push_back({"y_f32", OutputFormat::kF32, LaunchTensor::F32(y, p.rows, part.w.n)});
    }
  }
  return all;
}

CallDims DimsOf(const LinearBf16Params& p) { return DimsOfParts(p); }

absl::Status Validate(const OutputGroupsParams& p) {
  return Expect(p.rows >= 1 && p.groups >= 1 && p.rank >= 1 && p.rank % kFp8Block == 0 &&
                    p.group_width % kFp8Block == 0 && p.wo_a.n == p.groups * p.rank &&
                    p.wo_a.k == p.group_width && p.wo_a.data != nullptr && HasScales(p.wo_a) &&
                    p.o != nullptr && p.y != nullptr,
                "output_groups: rows ", p.rows, ", groups ", p.groups, ", rank ", p.rank,
                ", group width ", p.group_width, ", weight [", p.wo_a.n, ", ", p.wo_a.k,
                "] or a null pointer");
}

Cost CostOf(const OutputGroupsParams& p) {
  return {
      .bytes = Fp8Bytes(p.wo_a) + int64_t{p.rows} * p.groups * (p.group_width + p.rank) * kActBytes,
      .flops = 2 * int64_t{p.rows} * p.wo_a.n * p.wo_a.k};
}

LaunchTensors TensorsOf(const OutputGroupsParams& p, Device&) {
  return {{LaunchTensor::Act(p.o, p.rows, p.groups * p.group_width)},
          {p.quantise ? LaunchOutput{"y", OutputFormat::kCodes,
                                     LaunchTensor::Quantized(p.y, p.rows, p.groups * p.rank)}
                      : LaunchOutput{"y", OutputFormat::kBf16,
                                     LaunchTensor::Act(p.y, p.rows, p.groups * p.rank)}}};
}

CallDims DimsOf(const OutputGroupsParams& p) {
  return {{"rows", p.rows}, {"n", p.groups * p.rank}, {"k", p.group_width}};
}

}  // namespace dsv4
