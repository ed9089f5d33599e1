// SPDX-License-Identifier: Apache-2.0
// linear_bf16: y = x w^T of bf16 weights and rows; up to five weights in one launch, each with bf16
//   or f32 output. For compressors, indexer weights and lm_head.
// Contract: kernels/op/dense.h; weights packed (packed_layout.h).
// Roofline: 2 n k bytes of weights a call, 2 n k flops a row: memory-bound up to about a hundred
//   rows.
// Plan: that of linear.cuh, as in linear_fp8; parts in block formats: block_products.h.
//   Measurements: docs/kernels.md.
// Edge cases: those of linear_fp8.
#include "kernels/op/dense.h"
#include "kernels/sm12x/block_products.h"
#include "kernels/sm12x/entries.h"
#include "kernels/sm12x/launch.h"
#include "kernels/sm12x/linear.cuh"

namespace dsv4 {
namespace {

bool HasQuantised(const LinearBf16Params& p) {
  for (int i = 0; i < p.part_count; ++i) {
    if (IsQuantised(p.parts[static_cast<size_t>(i)].w.blocks)) return true;
  }
  return false;
}

int64_t Workspace(const LinearBf16Params& p, int) {
  return HasQuantised(p) ? sm12x::RoundedBytes(p.rows, p.k) : 0;
}

void Launch(const LaunchContext& context, const LinearBf16Params& p) {
  sm12x::LinearJob<sm12x::Bf16Slices> job;
  job.rows = p.rows;
  job.x = static_cast<const std::byte*>(p.x);
  job.row_bytes = p.k * 2;
  sm12x::BlockJob blocks;
  blocks.rows = p.rows;
  blocks.k = p.k;
  blocks.x = job.x;
  blocks.row_bytes = job.row_bytes;
  blocks.part_count = p.part_count;
  for (size_t i = 0; i < static_cast<size_t>(p.part_count); ++i) {
    const LinearBf16Params::Part& part = p.parts[i];
    blocks.parts[i] = {.data = part.w.block_weight().data,
                       .n = part.w.n,
                       .y = part.y,
                       .width = part.w.n,
                       .bf16 = part.round_output};
    if (!part.w.in_blocks()) job.parts[job.part_count++] = {part.w, part.y, part.round_output};
  }
  if (HasQuantised(p)) {
    sm12x::LaunchRounding(context, p.rows, p.k, context.workspace, &blocks);
  }
  sm12x::LaunchBlockParts(context, blocks,
                          [&](int i) { return p.parts[static_cast<size_t>(i)].w.blocks; });
  if (job.part_count == 0) return;
  sm12x::LaunchLinear(context, job, sm12x::PathOf(ConfigOf(context, sm12x::kLinearConfigs)));
}

}  // namespace

constinit const KernelEntry kSm12xLinearBf16 =
    MakeSm12xEntry<LinearBf16Params, &Launch, &SupportsAll<LinearBf16Params>, &Workspace>(
        "sm12x.linear_bf16", 3, {sm12x::kLinearKnobs, sm12x::kLinearConfigs});

}  // namespace dsv4
