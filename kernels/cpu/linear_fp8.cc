// SPDX-License-Identifier: Apache-2.0
// y = x w^T for FP8 weights, unpacked in registers or in a panel; contract in kernels/op/dense.h.
#include <algorithm>

#include "kernels/cpu/entries.h"
#include "kernels/cpu/panel.h"
#include "kernels/op/dense.h"

namespace dsv4 {
namespace {

int64_t Workspace(const LinearFp8Params& p, int threads) {
  return LinearWorkspaceBytes(WeightView::Format::kFp8, LinearOutput::kRound, p.k, threads);
}

void Launch(const LaunchContext& context, const LinearFp8Params& p) {
  LinearPart parts[3];
  for (int i = 0; i < p.part_count; ++i) {
    const LinearFp8Params::Part& part = p.parts[i];
    parts[i] = {.x = {static_cast<const uint16_t*>(p.x), p.k},
                .w = part.w,
                .output = LinearOutput::kRound,
                .y = part.y,
                .y_stride = part.w.n};
  }
  RunLinear(*static_cast<CpuStream*>(context.stream),
            absl::MakeConstSpan(parts, static_cast<size_t>(p.part_count)), p.rows,
            context.workspace);
}

}  // namespace

constinit const KernelEntry kCpuLinearFp8 =
    MakeEntry<LinearFp8Params, &Launch, &SupportsAll<LinearFp8Params>, &Workspace>(
        "cpu.linear_fp8", Backend::kCpu, NumericsBit(Numerics::kPublished), 2);

}  // namespace dsv4
