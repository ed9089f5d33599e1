// SPDX-License-Identifier: Apache-2.0
// moe_gate: scores sqrt(softplus(gate . x)); the K best of score + bias, or the token's; weights.
// Contract: kernels/op/moe.h; the gate packed (packed_layout.h), at most 1024 experts.
// Roofline: 2 E D bytes of weights a call: 2 MB at 256 x 4096, latency at few rows.
// Plan: the products as linear_bf16 in f32 to the workspace; then a warp a row, which keeps
//   score + bias in registers and takes the largest K times.
// Edge cases: equal sums go to the lowest expert; a NaN counts as the smallest, so that the experts
//   of any row, padding too, are experts. Scores that become weights are computed in double.
#include "kernels/op/moe.h"
#include "kernels/sm12x/entries.h"
#include "kernels/sm12x/launch.h"
#include "kernels/sm12x/linear.cuh"

namespace dsv4 {
namespace {

constexpr uint32_t kAllLanes = 0xffffffffu;
constexpr int64_t kMaxExperts = 1024;

__device__ __forceinline__ float Score(float x) {
  return sqrtf(fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))));
}
__device__ __forceinline__ float AccurateScore(float logit) {
  const double x = logit;
  return static_cast<float>(sqrt(fmax(x, 0.0) + log1p(exp(-fabs(x)))));
}

// Ordered as the floats are, and above 0; a NaN as -inf.
__device__ __forceinline__ uint32_t OrderedKey(float value) {
  const uint32_t bits = __float_as_uint(isnan(value) ? -INFINITY : value);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// One warp a row; lane l takes experts l + 32 i, i < kPerLane.
template <int kPerLane>
__global__ void __launch_bounds__(32)
    select_experts_kernel(const __grid_constant__ MoeGateParams p, const float* all_logits) {
  sm12x::BeginAfterPredecessors();
  const int64_t row = blockIdx.x;
  const int32_t experts = static_cast<int32_t>(p.gate.n), k = p.experts_per_token;
  const int32_t lane = static_cast<int32_t>(threadIdx.x);
  const float* logits = all_logits + row * experts;
  int32_t chosen = 0;  // lane i's: the i-th
  if (p.tid2eid != nullptr) {
    if (lane < k) chosen = p.tid2eid[int64_t{p.tokens[row]} * k + lane];
  } else {
    uint32_t keys[kPerLane];  // 0: taken, or none
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int32_t e = lane + 32 * i;
      keys[i] = e < experts ? OrderedKey(Score(logits[e]) + p.bias[e]) : 0;
    }
    for (int32_t place = 0; place < k; ++place) {
      uint32_t own = 0;
      int32_t expert = INT32_MAX;
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) {
        if (keys[i] > own) {
          own = keys[i];
          expert = lane + 32 * i;
        }
      }
      const uint32_t best = __reduce_max_sync(kAllLanes, own);
      const int32_t winner = __reduce_min_sync(kAllLanes, own == best ? expert : INT32_MAX);
      if (lane == place) chosen = winner;
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) {
        if (lane + 32 * i == winner) keys[i] = 0;
      }
    }
  }
  const float score = lane < k ? AccurateScore(logits[chosen]) : 0.0f;
  float sum = 0;
  for (int32_t i = 0; i < k; ++i) sum = __fadd_rn(sum, __shfl_sync(kAllLanes, score, i));
  if (lane < k) {
    p.experts[row * k + lane] = chosen;
    p.weights[row * k + lane] = __fmul_rn(__fdiv_rn(score, sum), p.routed_scale);
  }
}

absl::Status Supports(const MoeGateParams& p) {
  return p.gate.n <= kMaxExperts ? absl::OkStatus()
                                 : Unsupported(p.gate.n, " experts, at most ", kMaxExperts);
}

int64_t Workspace(const MoeGateParams& p, int) {
  return p.rows * p.gate.n * static_cast<int64_t>(sizeof(float));
}

void Launch(const LaunchContext& context, const MoeGateParams& p) {
  const cudaStream_t stream = CudaStreamOf(context);
  sm12x::LinearJob<sm12x::Bf16Chains> job;
  job.rows = p.rows;
  job.x = static_cast<const std::byte*>(p.x);
  job.row_bytes = p.gate.k * kActBytes;
  job.part_count = 1;
  job.parts[0] = {p.gate, context.workspace, false};
  sm12x::LaunchLinear(stream, job);
  const auto select = p.gate.n <= 256 ? select_experts_kernel<8> : select_experts_kernel<32>;
  sm12x::LaunchOverlapped(stream, dim3(static_cast<unsigned>(p.rows)), 32, 0, select, p,
                          reinterpret_cast<const float*>(context.workspace));
}

}  // namespace

constinit const KernelEntry kSm12xMoeGate =
    MakeSm12xEntry<MoeGateParams, &Launch, &Supports, &Workspace>("sm12x.moe_gate", 1);

}  // namespace dsv4
