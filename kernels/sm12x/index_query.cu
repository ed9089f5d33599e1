// SPDX-License-Identifier: Apache-2.0
// index_query: q = fp4_act_quant(Hadamard(RoPE(q))), as bf16.
// Contract: kernels/op/attention.h.
// Roofline: 512 bytes a head and row: latency at one row, bandwidth at many.
// Plan: a warp for each (row, head), four elements a lane; the rotation by shuffles, so that no
// lane overwrites what another still reads. Edge cases: padding rows are rows.
#include "kernels/op/attention.h"
#include "kernels/sm12x/entries.h"
#include "kernels/sm12x/launch.h"
#include "kernels/sm12x/overlapped_launch.cuh"
#include "kernels/sm12x/row_math.cuh"

namespace dsv4 {
namespace {

using namespace sm12x;  // NOLINT: the device code of this file

constexpr int kWarps = 4;

__global__ void __launch_bounds__(kWarps * 32)
    index_query_kernel(const __grid_constant__ IndexQueryParams p,
                       const __grid_constant__ StepRows step) {
  BeginAfterPredecessors();
  const int lane = threadIdx.x % 32;
  const int64_t unit = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const int64_t t = unit / p.heads;
  if (t >= step.rows) return;
  auto* q = reinterpret_cast<uint2*>(static_cast<uint16_t*>(p.q) + unit * kIndexKeyElements) + lane;
  const uint2 in = *q;
  float x[4] = {Bf16Low(in.x), Bf16High(in.x), Bf16Low(in.y), Bf16High(in.y)};
  RotateTail(x, step.rope.compressed + t * kKvRopeElements, lane);
  Hadamard(x, lane);
  uint32_t codes[4];
  const float scale = __uint_as_float(QuantizeFp4(x, codes) << 23);
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = DecodeE2M1(codes[i]) * scale;
  *q = make_uint2(PackBf16(x[0], x[1]), PackBf16(x[2], x[3]));
}

void LaunchIndexQuery(const LaunchContext& context, const IndexQueryParams& params) {
  const int64_t units = int64_t{params.step->rows} * params.heads;
  const auto blocks = static_cast<unsigned>((units + kWarps - 1) / kWarps);
  LaunchOverlapped(CudaStreamOf(context), dim3(blocks), kWarps * 32, 0, index_query_kernel, params,
                   *params.step);
}

}  // namespace

constinit const KernelEntry kSm12xIndexQuery =
    MakeSm12xEntry<IndexQueryParams, &LaunchIndexQuery>("sm12x.index_query", 1);

}  // namespace dsv4
