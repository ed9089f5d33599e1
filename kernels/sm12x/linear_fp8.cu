// SPDX-License-Identifier: Apache-2.0
// linear_fp8: y = x w^T of e4m3 weights, with a scale for each 128 x 128, and quantised rows; up to
//   three weights in one launch.
// Contract: kernels/op/dense.h; x are quantised rows, weights packed (packed_layout.h); k at most
//   16384.
// Roofline: n k (1 + 1 / 16384) bytes of weights a call, 2 n k flops a row: memory-bound up to
//   about a hundred rows.
// Plan: that of linear.cuh.
//   - Up to 8 rows, or up to 64 where tiles are few: the warps of a block share a tile of 16
//     weight rows along K and keep it in registers while rows pass (inner_product.cuh).
//   - More rows: a GEMM (gemm.cuh) in the shape with the least time by calculation.
//   - Parts in block formats: block_products.h. x is bf16 then.
//   - If a part has f32 scales, they multiply the products of a K slice after its MMAs.
//   Measurements: docs/kernels.md.
// Edge cases: n need not be a multiple of 16: packed weights are padded with zeros. Rows that pad a
//   tile repeat the last row and are not stored.
#include "kernels/op/dense.h"
#include "kernels/sm12x/block_products.h"
#include "kernels/sm12x/entries.h"
#include "kernels/sm12x/launch.h"
#include "kernels/sm12x/linear.cuh"

namespace dsv4 {
namespace {

template <class KSlices>
void LaunchAs(const LaunchContext& context, const LinearFp8Params& p) {
  sm12x::LinearJob<KSlices> job;
  job.rows = p.rows;
  job.x = static_cast<const std::byte*>(p.x);
  job.row_bytes = sm12x::QuantizedRowBytes(p.k);
  job.scale_bytes = p.k;
  job.part_count = p.part_count;
  for (int i = 0; i < p.part_count; ++i) job.parts[i] = {p.parts[i].w, p.parts[i].y, true};
  sm12x::LaunchLinear(context, job, sm12x::PathOf(ConfigOf(context, sm12x::kLinearConfigs)));
}

void LaunchInBlocks(const LaunchContext& context, const LinearFp8Params& p) {
  sm12x::BlockJob job;
  job.rows = p.rows;
  job.k = p.k;
  job.x = static_cast<const std::byte*>(p.x);
  job.row_bytes = p.k * kActBytes;
  job.part_count = p.part_count;
  for (size_t i = 0; i < static_cast<size_t>(p.part_count); ++i) {
    const LinearFp8Params::Part& part = p.parts[i];
    job.parts[i] = {.data = part.w.data, .n = part.w.n, .y = part.y, .width = part.w.n};
  }
  sm12x::LaunchRounding(context, p.rows, p.k, context.workspace, &job);
  sm12x::LaunchBlockParts(context, job,
                          [&](int i) { return p.parts[static_cast<size_t>(i)].w.blocks; });
}

// A row of x is quantised for all parts, or for none.
absl::Status Supports(const LinearFp8Params& p) {
  for (int i = 1; i < p.part_count; ++i) {
    if (p.parts[static_cast<size_t>(i)].w.in_blocks() != p.parts[0].w.in_blocks()) {
      return Unsupported("FP8 weights beside weights in block formats");
    }
  }
  return absl::OkStatus();
}

int64_t Workspace(const LinearFp8Params& p, int) {
  return p.parts[0].w.in_blocks() ? sm12x::RoundedBytes(p.rows, p.k) : 0;
}

void Launch(const LaunchContext& context, const LinearFp8Params& p) {
  if (p.parts[0].w.in_blocks()) return LaunchInBlocks(context, p);
  bool f32 = false;
  for (int i = 0; i < p.part_count; ++i) f32 |= p.parts[i].w.f32_scale != nullptr;
  f32 ? LaunchAs<sm12x::Fp8F32Slices>(context, p) : LaunchAs<sm12x::Fp8Slices>(context, p);
}

}  // namespace

constinit const KernelEntry kSm12xLinearFp8 =
    MakeSm12xEntry<LinearFp8Params, &Launch, &Supports, &Workspace>(
        DSV4_SM12X_SET ".linear_fp8", 3, {sm12x::kLinearKnobs, sm12x::kLinearConfigs});

}  // namespace dsv4
