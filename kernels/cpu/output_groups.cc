// SPDX-License-Identifier: Apache-2.0
// The grouped low-rank output projection: one linear per group, quantised as it is stored; contract
// in kernels/op/dense.h.
#include <algorithm>

#include "kernels/cpu/entries.h"
#include "kernels/cpu/panel.h"
#include "kernels/op/dense.h"

namespace dsv4 {
namespace {

constexpr int32_t kMaxGroups = 64;

absl::Status Supports(const OutputGroupsParams& p) {
  return Expect(p.groups <= kMaxGroups, "output_groups: ", p.groups, " groups, at most ",
                kMaxGroups);
}

int64_t Workspace(const OutputGroupsParams& p, int threads) {
  return LinearWorkspaceBytes(FormatOf(p.wo_a, WeightView::Format::kFp8),
                              LinearOutput::kRoundQuantise, p.group_width, threads, p.rows,
                              p.groups);
}

void Launch(const LaunchContext& context, const OutputGroupsParams& p) {
  LinearPart parts[kMaxGroups];
  const int64_t scale_blocks = p.rank / kFp8Block * (p.group_width / kFp8Block);
  for (int32_t g = 0; g < p.groups; ++g) {
    const int64_t row_bytes =
        p.wo_a.in_blocks() ? BlockBytes(p.wo_a.blocks, p.group_width) : p.group_width;
    const Fp8Weight group = {
        .data = p.wo_a.data + g * p.rank * row_bytes,
        .scale = p.wo_a.scale == nullptr ? nullptr : p.wo_a.scale + g * scale_blocks,
        .n = p.rank,
        .k = p.group_width,
        .blocks = p.wo_a.blocks};
    WeightView weight = group;
    if (p.wo_a.f32_scale != nullptr) {
      weight.format = WeightView::Format::kFp8Rounded;
      weight.f32_scale = p.wo_a.f32_scale + g * scale_blocks;
    }
    parts[g] = {
        .x = {static_cast<const uint16_t*>(p.o) + g * p.group_width, p.groups * p.group_width},
        .w = weight,
        .output = p.quantise ? LinearOutput::kRoundQuantise : LinearOutput::kRound,
        .y = static_cast<uint16_t*>(p.y) + g * p.rank,
        .y_stride = p.groups * p.rank};
  }
  RunLinear(*static_cast<CpuStream*>(context.stream),
            absl::MakeConstSpan(parts, static_cast<size_t>(p.groups)), p.rows, context.workspace);
}

}  // namespace

constinit const KernelEntry kCpuOutputGroups =
    MakeEntry<OutputGroupsParams, &Launch, &Supports, &Workspace>(
        "cpu.output_groups", Backend::kCpu, NumericsBit(Numerics::kPublished), 3);

}  // namespace dsv4
