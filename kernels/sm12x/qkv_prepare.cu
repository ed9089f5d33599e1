// SPDX-License-Identifier: Apache-2.0
// qkv_prepare: q = RoPE(q * rsqrt(mean(q^2) + eps)) per head; window row =
// act_quant(RoPE(RMSNorm(kv))). Contract: kernels/op/attention.h; window rows packed or bf16.
// Roofline: 2048 H + 1024 + 584 bytes a row: latency at one row, bandwidth at many.
// Plan: a warp for each (row, head), and one for the row's key/value; nothing shared.
// Edge cases: padding rows touch no cache.
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
    qkv_prepare_kernel(const __grid_constant__ QkvPrepareParams p,
                       const __grid_constant__ StepRows step) {
  BeginAfterPredecessors();
  const int lane = threadIdx.x % 32;
  const int64_t unit = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const int64_t t = unit / (p.heads + 1);
  const int64_t head = unit % (p.heads + 1);  // the last one is the key/value row
  if (t >= step.rows) return;
  const float* rope =
      (p.compressed_rope ? step.rope.compressed : step.rope.window) + t * kKvRopeElements;
  const uint16_t* from =
      head == p.heads ? static_cast<const uint16_t*>(p.kv) + t * kKvRowElements
                      : static_cast<const uint16_t*>(p.q) + (t * p.heads + head) * kKvRowElements;
  float x[2][8];
  LoadBf16x8(from + lane * 8, x[0]);
  LoadBf16x8(from + 256 + lane * 8, x[1]);
  if (head == p.heads) {
    const int32_t sequence = step.sequence_of[t];
    if (sequence < 0) return;
    const int64_t position = step.positions[t];
    const int32_t block = step.sequences[sequence].window_blocks[position / kWindowBlockTokens];
    FinishKvRow(x, p.kv_norm, p.eps, rope, p.window, block, position % kWindowBlockTokens, lane);
    return;
  }
  TwoFloat squares;
  AddSquares(x[0], &squares);
  AddSquares(x[1], &squares);
  const TwoFloat inverse = InverseRms(WarpSum(squares), kKvRowElements, p.eps);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int i = 0; i < 8; ++i) x[half][i] = RoundBf16(Scaled(x[half][i], inverse));
  }
  RotateTail(x[1], rope, lane);
  uint16_t* to = static_cast<uint16_t*>(p.q) + (t * p.heads + head) * kKvRowElements;
  StoreBf16x8(x[0], to + lane * 8);
  StoreBf16x8(x[1], to + 256 + lane * 8);
}

void LaunchQkvPrepare(const LaunchContext& context, const QkvPrepareParams& params) {
  const int64_t units = int64_t{params.step->rows} * (params.heads + 1);
  const auto blocks = static_cast<unsigned>((units + kWarps - 1) / kWarps);
  LaunchOverlapped(CudaStreamOf(context), dim3(blocks), kWarps * 32, 0, qkv_prepare_kernel, params,
                   *params.step);
}

}  // namespace

constinit const KernelEntry kSm12xQkvPrepare =
    MakeSm12xEntry<QkvPrepareParams, &LaunchQkvPrepare, &SupportsSm12xRows<QkvPrepareParams>>(
        "sm12x.qkv_prepare", 1);

}  // namespace dsv4
