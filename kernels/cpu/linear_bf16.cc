// SPDX-License-Identifier: Apache-2.0
// y = x w^T for bf16 weights, which are read in place; contract in kernels/op/dense.h.
#include "kernels/cpu/entries.h"
#include "kernels/cpu/panel.h"
#include "kernels/op/dense.h"

namespace dsv4 {
namespace {

int64_t Workspace(const LinearBf16Params& p, int threads) {
  return LinearWorkspaceBytes(WeightView::Format::kBf16, LinearOutput::kRound, p.k, threads);
}

void Launch(const LaunchContext& context, const LinearBf16Params& p) {
  LinearPart parts[5];
  for (int i = 0; i < p.part_count; ++i) {
    const LinearBf16Params::Part& part = p.parts[i];
    parts[i] = {.x = {static_cast<const uint16_t*>(p.x), p.k},
                .w = part.w,
                .output = part.round_output ? LinearOutput::kRound : LinearOutput::kF32,
                .y = part.y,
                .y_stride = part.w.n};
  }
  RunLinear(*static_cast<CpuStream*>(context.stream),
            absl::MakeConstSpan(parts, static_cast<size_t>(p.part_count)), p.rows,
            context.workspace);
}

}  // namespace

constinit const KernelEntry kCpuLinearBf16 =
    MakeEntry<LinearBf16Params, &Launch, &SupportsAll<LinearBf16Params>, &Workspace>(
        "cpu.linear_bf16", Backend::kCpu, NumericsBit(Numerics::kPublished), 2);

}  // namespace dsv4
