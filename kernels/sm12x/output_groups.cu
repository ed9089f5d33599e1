// SPDX-License-Identifier: Apache-2.0
// output_groups: y[t, g] = act_quant(bf16(wo_a[g] . o[t, g])), the first half of the output
// projection.
//
// Contract: kernels/op/dense.h; wo_a packed (packed_layout.h), y quantised rows.
//
// Roofline: G rank width bytes of weights a call, 2 G rank width flops a row. Bound by memory up to
// about a hundred rows. Measurements: docs/kernels.md.
//
// Plan:
// - The input is not quantised, so the weight is dequantised to bf16 (exactly, or rounded with F32
//   scales) and multiplied as in linear_bf16.
// - Groups are parts of the weight with their own columns of o.
// - The products go to the workspace as bf16. A second kernel quantises them.
//
// - A weight in a block format: block_products.h. Rows that are not to be quantised go to y.
//
// Edge cases: those of linear_fp8.
#include "kernels/op/dense.h"
#include "kernels/sm12x/block_products.h"
#include "kernels/sm12x/entries.h"
#include "kernels/sm12x/launch.h"
#include "kernels/sm12x/linear.cuh"
#include "kernels/sm12x/quantize_kernel.cuh"

namespace dsv4 {
namespace {

// The products, before they are quantised.
int64_t ProductBytes(const OutputGroupsParams& p) {
  return RoundUp(int64_t{p.rows} * p.groups * p.rank * kActBytes, int64_t{16});
}
int64_t Workspace(const OutputGroupsParams& p, int) {
  return ProductBytes(p) +
         (p.wo_a.in_blocks() ? sm12x::RoundedBytes(p.rows, p.groups * p.group_width) : 0);
}

template <class KSlices>
void LaunchProducts(const LaunchContext& context, const OutputGroupsParams& p, void* y) {
  sm12x::LinearJob<KSlices> job;
  job.rows = p.rows;
  job.x = static_cast<const std::byte*>(p.o);
  job.row_bytes = p.groups * p.group_width * kActBytes;
  job.group_tiles = p.rank / sm12x::kTileRows;
  job.group_bytes = p.group_width * kActBytes;
  job.part_count = 1;
  job.parts[0] = {p.wo_a, y, true};
  sm12x::LaunchLinear(context, job, sm12x::PathOf(ConfigOf(context, sm12x::kLinearConfigs)));
}

void LaunchInBlocks(const LaunchContext& context, const OutputGroupsParams& p, void* y) {
  sm12x::BlockJob job;
  job.rows = p.rows;
  job.k = p.group_width;
  job.x = static_cast<const std::byte*>(p.o);
  job.row_bytes = p.groups * p.group_width * kActBytes;
  job.group_rows = p.rank;
  job.group_bytes = p.group_width * kActBytes;
  job.part_count = 1;
  job.parts[0] = {.data = p.wo_a.data, .n = p.wo_a.n, .y = y, .width = p.groups * p.rank};
  if (IsQuantised(p.wo_a.blocks)) {
    sm12x::LaunchRounding(context, p.rows, p.groups * p.group_width,
                          context.workspace + ProductBytes(p), &job);
  }
  sm12x::LaunchBlocks(context, p.wo_a.blocks, job);
}

void Launch(const LaunchContext& context, const OutputGroupsParams& p) {
  const cudaStream_t stream = CudaStreamOf(context);
  void* const y = p.quantise ? context.workspace : p.y;
  if (p.wo_a.in_blocks()) {
    LaunchInBlocks(context, p, y);
  } else if (p.wo_a.f32_scale != nullptr) {
    LaunchProducts<sm12x::Fp8RoundedSlices>(context, p, y);
  } else {
    LaunchProducts<sm12x::Fp8UnpackedSlices>(context, p, y);
  }
  if (!p.quantise) return;
  sm12x::LaunchQuantize(stream, reinterpret_cast<const uint16_t*>(context.workspace), p.rows,
                        p.groups * p.rank, static_cast<uint8_t*>(p.y));
}

}  // namespace

constinit const KernelEntry kSm12xOutputGroups =
    MakeSm12xEntry<OutputGroupsParams, &Launch, &SupportsAll<OutputGroupsParams>, &Workspace>(
        "sm12x.output_groups", 3, {sm12x::kLinearKnobs, sm12x::kLinearConfigs});

}  // namespace dsv4
