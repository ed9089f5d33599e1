// SPDX-License-Identifier: Apache-2.0
// y = x w^T for FP8 weights, widened in registers or in a panel; contract in kernels/op/dense.h.
#include <algorithm>

#include "kernels/cpu/entries.h"
#include "kernels/cpu/panel.h"
#include "kernels/op/dense.h"

namespace dsv4 {
namespace {

// From here on chains of f32 are long enough to round now and then, even of e4m3 products.
constexpr int64_t kLongSum = 1024;

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
                .sums = p.k < kLongSum ? Sums::kPlain : Sums::kWide,
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
        "cpu.linear_fp8", Backend::kCpu, NumericsBit(Numerics::kPublished), 1);

}  // namespace dsv4
