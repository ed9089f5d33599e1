// SPDX-License-Identifier: Apache-2.0
// Gate scores by a linear in f32, then each row's choice of experts and their weights; contract in
// kernels/op/moe.h.
#include <algorithm>

#include "kernels/cpu/entries.h"
#include "kernels/cpu/epilogue.h"
#include "kernels/cpu/panel.h"
#include "kernels/op/moe.h"
#include "lib/base/checked_math.h"

namespace dsv4 {
namespace {

int64_t ScoreBytes(const MoeGateParams& p) {
  return RoundUp<int64_t>(p.rows * p.gate.n * static_cast<int64_t>(sizeof(float)), 64);
}

int64_t Workspace(const MoeGateParams& p, int threads) {
  return ScoreBytes(p) + LinearWorkspaceBytes(FormatOf(p.gate, WeightView::Format::kBf16),
                                              LinearOutput::kF32, p.gate.k, threads, p.rows);
}

// The indices of the `count` largest of score[e] + bias[e], descending, ties by index.
void SelectTop(const float* score, const float* bias, int32_t n, int32_t count, int32_t* chosen) {
  float value[kMaxExpertsPerToken];
  int32_t held = 0;
  for (int32_t e = 0; e < n; ++e) {
    const float v = score[e] + bias[e];
    if (held == count && !(v > value[held - 1])) continue;
    int32_t at = held < count ? held++ : held - 1;
    for (; at > 0 && v > value[at - 1]; --at) {
      value[at] = value[at - 1];
      chosen[at] = chosen[at - 1];
    }
    value[at] = v;
    chosen[at] = e;
  }
}

void ChooseExperts(const MoeGateParams& p, int64_t row, float* score) {
  const int32_t n = static_cast<int32_t>(p.gate.n), count = p.experts_per_token;
  int32_t* chosen = p.experts + row * count;
  float* weights = p.weights + row * count;
  SqrtSoftplus(score, n);
  if (p.tid2eid != nullptr) {
    std::copy_n(p.tid2eid + int64_t{p.tokens[row]} * count, count, chosen);
  } else {
    SelectTop(score, p.bias, n, count, chosen);
  }
  float sum = 0;
  for (int32_t i = 0; i < count; ++i) sum += score[chosen[i]];
  for (int32_t i = 0; i < count; ++i) weights[i] = score[chosen[i]] / sum * p.routed_scale;
}

void Launch(const LaunchContext& context, const MoeGateParams& p) {
  constexpr int64_t kBlockRows = 32;
  CpuStream& stream = *static_cast<CpuStream*>(context.stream);
  float* scores = reinterpret_cast<float*>(context.workspace);
  const LinearPart part = {.x = {static_cast<const uint16_t*>(p.x), p.gate.k},
                           .w = p.gate,
                           .output = LinearOutput::kF32,
                           .y = scores,
                           .y_stride = p.gate.n};
  RunLinear(stream, {&part, 1}, p.rows, context.workspace + ScoreBytes(p));
  const int64_t cycles_per_row = 200 + 5 * p.gate.n;
  ForUnits(stream, CeilDiv<int64_t>(p.rows, kBlockRows), p.rows * cycles_per_row,
           [&](int64_t unit, int) {
             const int64_t end = std::min<int64_t>(p.rows, (unit + 1) * kBlockRows);
             for (int64_t row = unit * kBlockRows; row < end; ++row) {
               ChooseExperts(p, row, scores + row * p.gate.n);
             }
           });
}

}  // namespace

constinit const KernelEntry kCpuMoeGate =
    MakeEntry<MoeGateParams, &Launch, &SupportsAll<MoeGateParams>, &Workspace>(
        "cpu.moe_gate", Backend::kCpu, NumericsBit(Numerics::kPublished), 3);

}  // namespace dsv4
