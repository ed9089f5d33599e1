// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "kernels/reference/launch.h"
#include "kernels/reference/matmul.h"
#include "kernels/reference/numerics.h"
#include "kernels/reference/row_math.h"
#include "kernels/reference/scratch.h"

namespace dsv4::reference {
namespace {

// A pair is a row with one of its K experts, pair = t * K + i.
struct FfnPlan {
  FfnPlan(std::byte* base, const ExpertFfnParams& params, int threads)
      : scratch(base),
        pairs(int64_t{params.rows} * params.experts_per_token),
        pass_rows(std::min(std::max<int64_t>(pairs, params.rows), kMatmulPassRows)),
        expert_end(scratch.Take<int32_t>(params.expert_count)),
        pair_of(scratch.Take<int32_t>(pairs)),
        row_of(scratch.Take<int32_t>(pairs)),
        slot_of(scratch.Take<int32_t>(pairs)),
        gate(scratch.Take<float>(params.part == ExpertPart::kWhole ? pass_rows * params.inter : 0)),
        up(scratch.Take<float>(pass_rows * params.inter)),
        outputs(scratch.Take<float>(pairs * params.hidden)),
        matmul(scratch.Take<float>(
            MatmulWorkspaceFloats(pass_rows, std::max(params.hidden, params.inter), threads))) {}
  Scratch scratch;
  int64_t pairs;
  int64_t pass_rows;
  int32_t* expert_end;  // [E]: end of each expert's slots
  int32_t* pair_of;     // [slots]: pairs in the order of their experts
  int32_t* row_of;      // [slots]: their rows
  int32_t* slot_of;     // [pairs]; -1: the pair has no expert
  float* gate;          // [pass_rows, I]: w1 x, then the hidden activation; kWhole alone
  float* up;            // [pass_rows, I]: w3 x
  float* outputs;       // [slots, D]
  float* matmul;
};

// Counting sort of the pairs by expert.
void SortPairs(const ExpertFfnParams& params, const FfnPlan& plan) {
  std::fill_n(plan.expert_end, params.expert_count, 0);
  const auto has_expert = [&](int64_t pair) {
    return params.experts[pair] >= 0 && params.experts[pair] < params.expert_count;
  };
  for (int64_t pair = 0; pair < plan.pairs; ++pair) {
    if (has_expert(pair)) ++plan.expert_end[params.experts[pair]];
  }
  int32_t begin = 0;
  for (int64_t e = 0; e < params.expert_count; ++e) {
    const int32_t count = plan.expert_end[e];
    plan.expert_end[e] = begin;
    begin += count;
  }
  for (int64_t pair = 0; pair < plan.pairs; ++pair) {
    plan.slot_of[pair] = -1;
    if (!has_expert(pair)) continue;
    const int32_t slot = plan.expert_end[params.experts[pair]]++;
    plan.pair_of[slot] = static_cast<int32_t>(pair);
    plan.row_of[slot] = static_cast<int32_t>(pair / params.experts_per_token);
    plan.slot_of[pair] = slot;
  }
}

// Gated hidden activation of one row, in place in `gate`.
void SwigluRow(const LaunchContext& context, float limit, float weight, int64_t inter, float* gate,
               float* up) {
  Round(context, Point::kRoundLinear, gate, inter);
  Round(context, Point::kRoundLinear, up, inter);
  for (int64_t i = 0; i < inter; ++i) {
    float g = gate[i], u = up[i];
    if (limit > 0) {
      g = std::min(g, limit);
      u = std::clamp(u, -limit, limit);
    }
    gate[i] = static_cast<float>(g * Sigmoid(g) * u * weight);
  }
  Round(context, Point::kRoundSwiglu, gate, inter);
}

// hidden [rows, I] of one expert: x's rows row_of[m] (null: m), weight_of(m) each.
template <class Weight, class WeightOf>
void RunProducts(const LaunchContext& context, const ExpertFfnParams& params, const FfnPlan& plan,
                 const Weight& w1, const Weight& w3, const float* x, const int32_t* row_of,
                 int64_t rows, WeightOf&& weight_of, float* hidden) {
  Linear(context, w1, x, row_of, rows, hidden, plan.matmul);
  Linear(context, w3, x, row_of, rows, plan.up, plan.matmul);
  StreamOf(context).ParallelFor(rows, [&](int64_t m, int) {
    SwigluRow(context, params.limit, weight_of(m), params.inter, hidden + m * params.inter,
              plan.up + m * params.inter);
  });
}

// y [rows, D] of one expert; quantises `hidden`, unless w2 is in a block format.
template <class Weight>
void RunOutputs(const LaunchContext& context, const ExpertFfnParams& params, const FfnPlan& plan,
                const Weight& w2, float* hidden, int64_t rows, float* y) {
  if (w2.blocks == BlockType::kNone) {
    StreamOf(context).ParallelFor(rows, [&](int64_t m, int) {
      ActQuant(context, Point::kQuantExpertHidden, hidden + m * params.inter, params.inter,
               kFp8Block);
    });
  }
  Linear(context, w2, hidden, nullptr, rows, y, plan.matmul);
  StreamOf(context).ParallelFor(rows, [&](int64_t m, int) {
    Round(context, Point::kRoundExpertOutput, y + m * params.hidden, params.hidden);
  });
}

// The parts of the call on `rows` rows of one expert; rows of products begin at `slot`.
template <class Weight, class WeightOf>
void RunExpert(const LaunchContext& context, const ExpertFfnParams& params, const FfnPlan& plan,
               const Weight& w1, const Weight& w3, const Weight& w2, const float* x,
               const int32_t* row_of, int64_t slot, int64_t rows, WeightOf&& weight_of, float* y) {
  float* hidden = plan.gate;
  if (params.part != ExpertPart::kWhole) {
    hidden = static_cast<float*>(params.products) + slot * params.inter;
  }
  if (params.part != ExpertPart::kOutputs) {
    RunProducts(context, params, plan, w1, w3, x, row_of, rows, weight_of, hidden);
  }
  if (params.part != ExpertPart::kProducts) {
    RunOutputs(context, params, plan, w2, hidden, rows, y);
  }
}

}  // namespace

void LaunchExpertFfn(const LaunchContext& context, const ExpertFfnParams& params) {
  CpuStream& stream = StreamOf(context);
  const FfnPlan plan(context.workspace, params, stream.threads());
  const float* x = static_cast<const float*>(params.x);
  float* y = static_cast<float*>(params.y);
  const int64_t hidden = params.hidden;

  SortPairs(params, plan);
  int64_t slot = 0;
  for (int64_t e = 0; e < params.expert_count; ++e) {
    while (slot < plan.expert_end[e]) {
      const int64_t rows = std::min<int64_t>(plan.pass_rows, plan.expert_end[e] - slot);
      const ExpertWeights& expert = *params.experts_table[e];
      RunExpert(
          context, params, plan, expert.w1, expert.w3, expert.w2, x, plan.row_of + slot, slot, rows,
          [&](int64_t m) { return params.weights[plan.pair_of[slot + m]]; },
          plan.outputs + slot * hidden);
      slot += rows;
    }
  }
  for (int64_t t = 0; t < params.rows; t += plan.pass_rows) {
    RunExpert(
        context, params, plan, params.shared_w1, params.shared_w3, params.shared_w2, x + t * hidden,
        nullptr, plan.pairs + t, std::min<int64_t>(plan.pass_rows, params.rows - t),
        [](int64_t) { return 1.0f; }, y + t * hidden);
  }
  if (params.part == ExpertPart::kProducts) return;
  stream.ParallelFor(params.rows, [&](int64_t t, int) {
    const int32_t* slots = plan.slot_of + t * params.experts_per_token;
    for (int64_t d = 0; d < hidden; ++d) {
      float sum = 0;
      for (int64_t i = 0; i < params.experts_per_token; ++i) {
        if (slots[i] >= 0) sum += plan.outputs[slots[i] * hidden + d];
      }
      y[t * hidden + d] += sum;
    }
    Round(context, Point::kRoundFfnOutput, y + t * hidden, hidden);
  });
}

absl::Status SupportsExpertFfn(const ExpertFfnParams& params) {
  return params.wave == ExpertWave::kAll ? absl::OkStatus() : Unsupported("experts in waves");
}

int64_t ExpertFfnWorkspace(const ExpertFfnParams& params, int threads) {
  return FfnPlan(nullptr, params, threads).scratch.bytes();
}

}  // namespace dsv4::reference
