// SPDX-License-Identifier: Apache-2.0
// linear_fp8: y = x w^T of e4m3 weights with a scale for each 128 x 128 and quantised rows, up to
//   three weights in one launch.
// Contract: kernels/op/dense.h; x are quantised rows, weights packed (packed_layout.h); k at most
//   16384.
// Roofline: n k (1 + 1 / 16384) bytes of weights a call and 2 n k flops a row: bound by memory up
//   to about a hundred rows.
// Plan: inner_product.cuh's: up to 32 rows (128 for narrow weights, which have too few tiles to
//   keep all multiprocessors busy) the warps of a block share a tile of 16 weight rows along K,
//   32 KB of weights a block under way at any time; beyond, 64 x 128 outputs a block.
// Measured (H200 by the twin, 2026-11-21, weights beyond L2): 32768 x 1024: one row 10.8 us (74 %
//   of the bandwidth of a copy), 8 rows 12.2 us, 64 rows 48 us; 4096 x 8192: 11.5, 11.7 and 53 us;
//   1536 x 4096: 3.8, 4.1 and 14 us; 4096 rows 117-133 TFLOP/s. Many rows are bound by the twin's
//   issue: each step of a tile and eight rows is two MMAs, but two conversions of activations for
//   each, and each chain 28 additions of its TwoFloats; block-scaled MMA needs no conversions and
//   no scaling.
// Edge cases: n need not be a multiple of 16 (packed weights are padded with zeros); rows past the
//   last repeat it and are not stored.
#include "kernels/op/dense.h"
#include "kernels/sm12x/entries.h"
#include "kernels/sm12x/launch.h"
#include "kernels/sm12x/linear.cuh"

namespace dsv4 {
namespace {

using sm12x::Fp8Chains;

absl::Status Supports(const LinearFp8Params& p) {
  return sm12x::TiledShape<Fp8Chains>::Fits(p.k) ? absl::OkStatus()
                                                 : Unsupported("k ", p.k, " is too large");
}

void Launch(const LaunchContext& context, const LinearFp8Params& p) {
  sm12x::LinearJob<Fp8Chains> job;
  job.rows = p.rows;
  job.x = static_cast<const std::byte*>(p.x);
  job.row_bytes = sm12x::QuantizedRowBytes(p.k);
  job.scale_bytes = p.k;
  job.part_count = p.part_count;
  for (int i = 0; i < p.part_count; ++i) job.parts[i] = {p.parts[i].w, p.parts[i].y, true};
  sm12x::LaunchLinear(context, job, ConfigOf(context, sm12x::kLinearConfigs));
}

}  // namespace

constinit const KernelEntry kSm12xLinearFp8 = MakeSm12xEntry<LinearFp8Params, &Launch, &Supports>(
    "sm12x.linear_fp8", 1, {sm12x::kLinearKnobs, sm12x::kLinearConfigs});

}  // namespace dsv4
