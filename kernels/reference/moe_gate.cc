// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/moe_gate.h"

#include <algorithm>
#include <cmath>

#include "kernels/reference/launch.h"
#include "kernels/reference/matmul.h"
#include "kernels/reference/numerics.h"
#include "kernels/reference/scratch.h"

namespace dsv4::reference {
namespace {

struct GatePlan {
  GatePlan(std::byte* base, const MoeGateParams& params, int threads)
      : scratch(base),
        logits(scratch.Take<float>(params.rows * params.gate.n)),
        matmul(scratch.Take<float>(MatmulWorkspaceFloats(params.rows, params.gate.k, threads))) {}
  Scratch scratch;
  float* logits;  // [T, E]
  float* matmul;
};

// The K largest of s + bias in descending order, by insertion: an equal value of a higher expert
// goes behind.
void TopExperts(const float* s, const float* bias, int64_t expert_count, int64_t k,
                int32_t* experts) {
  int64_t count = 0;
  for (int64_t e = 0; e < expert_count; ++e) {
    int64_t place = count;
    while (place > 0 && s[e] + bias[e] > s[experts[place - 1]] + bias[experts[place - 1]]) {
      --place;
    }
    if (place == k) continue;
    count = std::min(count + 1, k);
    std::copy_backward(experts + place, experts + count - 1, experts + count);
    experts[place] = static_cast<int32_t>(e);
  }
}

}  // namespace

void SelectExperts(float* logits, int64_t expert_count, int64_t experts_per_token,
                   const float* bias, const int32_t* fixed, float routed_scale, int32_t* experts,
                   float* weights) {
  for (int64_t e = 0; e < expert_count; ++e) {
    const double x = logits[e];
    logits[e] =
        static_cast<float>(std::sqrt(std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)))));
  }
  if (fixed != nullptr) {
    std::copy_n(fixed, experts_per_token, experts);
  } else {
    TopExperts(logits, bias, expert_count, experts_per_token, experts);
  }
  float sum = 0;
  for (int64_t i = 0; i < experts_per_token; ++i) sum += logits[experts[i]];
  for (int64_t i = 0; i < experts_per_token; ++i) {
    weights[i] = logits[experts[i]] / sum * routed_scale;
  }
}

void LaunchMoeGate(const LaunchContext& context, const MoeGateParams& params) {
  CpuStream& stream = StreamOf(context);
  const GatePlan plan(context.workspace, params, stream.threads());
  const int64_t expert_count = params.gate.n, k = params.experts_per_token;
  Linear(context, params.gate, static_cast<const float*>(params.x), nullptr, params.rows,
         plan.logits, plan.matmul);
  stream.ParallelFor(params.rows, [&](int64_t t, int) {
    const int32_t* fixed =
        params.tid2eid == nullptr ? nullptr : params.tid2eid + params.tokens[t] * k;
    SelectExperts(plan.logits + t * expert_count, expert_count, k, params.bias, fixed,
                  params.routed_scale, params.experts + t * k, params.weights + t * k);
  });
}

int64_t MoeGateWorkspace(const MoeGateParams& params, int threads) {
  return GatePlan(nullptr, params, threads).scratch.bytes();
}

}  // namespace dsv4::reference
