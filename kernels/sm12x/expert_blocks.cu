// SPDX-License-Identifier: Apache-2.0
// expert_ffn of experts in block formats: the launches of block_products.h for w1 and w3, then for
// w2. The shared expert has launches of its own, since its formats are others. For more than
// kBlockRows rows, one launch rounds x, and one the hidden rows, for all products.
//
// Contract, roofline and edge cases: expert_ffn.cu.
#include "kernels/sm12x/expert_launch.cuh"

namespace dsv4::sm12x {
namespace expert_blocks {

constexpr int kThreads = 256;

// hidden = silu(clamp(gate)) * clamp(up) * weight. A thread has eight columns of a slot.
__global__ void __launch_bounds__(kThreads)
    expert_hidden_kernel(const __grid_constant__ ExpertFfnParams p,
                         const __grid_constant__ FfnWorkspace work) {
  BeginAfterPredecessors();
  const int64_t slot = blockIdx.x, pairs = int64_t{p.rows} * p.experts_per_token;
  const int64_t column = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * 8;
  if (column >= p.inter) return;
  float weight = 1;
  if (slot < pairs) {
    const int32_t expert = p.experts[slot];
    if (expert < max(p.first_expert, 0) || expert >= min(p.end_expert, p.expert_count)) return;
    weight = p.weights[slot];
  } else if (p.wave == ExpertWave::kNext) {
    return;
  }
  float gate[8], up[8];
  LoadBf16x8(work.gate + slot * p.inter + column, gate);
  LoadBf16x8(work.up + slot * p.inter + column, up);
#pragma unroll
  for (int i = 0; i < 8; ++i) gate[i] = GatedProduct(gate[i], up[i], p.limit, weight);
  StoreBf16x8(gate, work.hidden + slot * p.inter + column);
}

// The rows of the routed experts.
BlockJob RoutedJob(const ExpertFfnParams& p, const ExpertPlan& plan, const void* x, int64_t k) {
  BlockJob job;
  job.x = static_cast<const std::byte*>(x);
  job.k = k;
  job.row_bytes = k * kActBytes;
  job.rows = p.rows;
  job.table = p.experts_table;
  job.groups = plan.work.groups;
  job.most_groups = {plan.most_groups[0], plan.most_groups[1]};
  job.row_divisor = p.experts_per_token;
  return job;
}

// Those of the shared expert: p.rows rows, from the routed experts' row `first` on.
BlockJob SharedJob(const ExpertFfnParams& p, const BlockJob& routed, int64_t first) {
  BlockJob job;
  job.x = routed.x + first * routed.row_bytes;
  job.k = routed.k;
  job.row_bytes = routed.row_bytes;
  job.rows = p.rows;
  if (routed.rounded != nullptr) job.rounded = routed.rounded + first * routed.rounded_row_bytes;
  job.rounded_row_bytes = routed.rounded_row_bytes;
  return job;
}

}  // namespace expert_blocks
using namespace expert_blocks;  // NOLINT: of this file alone

void LaunchBlockExperts(const LaunchContext& context, const ExpertFfnParams& p,
                        const ExpertPlan& plan) {
  const FfnWorkspace& work = plan.work;
  const bool shared = p.wave != ExpertWave::kNext;
  if (p.part != ExpertPart::kOutputs) {
    BlockJob routed = RoutedJob(p, plan, p.x, p.hidden);
    LaunchRounding(context, p.rows, p.hidden, plan.rounded, &routed);
    if (p.blocks.w1 == p.blocks.w3) {
      BlockJob both = routed;
      both.part_count = 2;
      both.parts[0] = {.n = p.inter, .y = work.gate, .width = p.inter};
      both.parts[1] = {.n = p.inter, .y = work.up, .width = p.inter};
      LaunchBlocks(context, p.blocks.w1, both);
    } else {
      for (const bool up : {false, true}) {
        BlockJob one = routed;
        one.part_count = 1;
        one.matrix = up ? &ExpertWeights::w3 : &ExpertWeights::w1;
        one.parts[0] = {.n = p.inter, .y = up ? work.up : work.gate, .width = p.inter};
        LaunchBlocks(context, up ? p.blocks.w3 : p.blocks.w1, one);
      }
    }
    if (shared) {
      BlockJob job = SharedJob(p, routed, 0);
      job.part_count = 2;
      const int64_t at = plan.pairs * p.inter;
      job.parts[0] = {
          .data = p.shared_w1.data, .n = p.inter, .y = work.gate + at, .width = p.inter};
      job.parts[1] = {.data = p.shared_w3.data, .n = p.inter, .y = work.up + at, .width = p.inter};
      LaunchBlockParts(context, job,
                       [&](int i) { return i == 0 ? p.shared_w1.blocks : p.shared_w3.blocks; });
    }
    LaunchOverlapped(CudaStreamOf(context),
                     dim3(static_cast<unsigned>(plan.slots), Blocks(p.inter, kThreads * 8)),
                     kThreads, 0, expert_hidden_kernel, p, work);
  }
  if (p.part == ExpertPart::kProducts) return;
  BlockJob down = RoutedJob(p, plan, work.hidden, p.inter);
  down.matrix = &ExpertWeights::w2;
  down.row_divisor = 1;
  down.part_count = 1;
  down.parts[0] = {.n = p.hidden, .y = work.outputs, .width = p.hidden};
  if (p.rows > kBlockRows) {
    LaunchRounding(context, shared ? plan.slots : plan.pairs, p.inter, plan.rounded, &down);
  }
  LaunchBlocks(context, p.blocks.w2, down);
  if (!shared) return;
  BlockJob job = SharedJob(p, down, plan.pairs);
  job.part_count = 1;
  job.parts[0] = {.data = p.shared_w2.data,
                  .n = p.hidden,
                  .y = work.outputs + plan.pairs * p.hidden,
                  .width = p.hidden};
  LaunchBlocks(context, p.shared_w2.blocks, job);
}

}  // namespace dsv4::sm12x
