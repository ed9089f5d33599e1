// SPDX-License-Identifier: Apache-2.0
// qkv_prepare: q = RoPE(q * rsqrt(mean(q^2) + eps)) per head; window row =
// act_quant(RoPE(RMSNorm(kv))); index q = fp4_act_quant(Hadamard(RoPE(q))), as bf16.
//
// Contract: kernels/op/attention.h; window rows packed, bf16 or fp8_per_tensor.
//
// Roofline: 2048 H + 1024 + 584 + 512 H_index bytes a row. Bound by latency at one row, by
// bandwidth at many. Measurements: docs/kernels.md.
//
// Plan: a warp for each (row, head), for each row's key/value, and for each (row, index head).
// Warps share nothing. The place of the key/value row is computed before the projections are ready.
// The Hadamard transform of an index head is by shuffles, so that it can be in place.
//
// Edge cases: padding rows write no cache row.
#include "kernels/op/attention.h"
#include "kernels/sm12x/arch/memory.cuh"
#include "kernels/sm12x/entries.h"
#include "kernels/sm12x/launch.h"
#include "kernels/sm12x/overlapped_launch.cuh"
#include "kernels/sm12x/row_math.cuh"

namespace dsv4 {
namespace sm12x::qkv_prepare {

using namespace sm12x;  // NOLINT: the device code of this file

constexpr int kWarps = 4;

// The warps of a row: query heads, key/value, index heads.
constexpr int64_t RowUnits(const QkvPrepareParams& p) {
  return int64_t{p.heads} + 1 + p.index_heads;
}

__device__ __forceinline__ void PrepareHead(uint16_t* q, float eps, const float* rope,
                                            bool quantize, int lane) {
  float x[2][8];
  LoadBf16x8(q + lane * 8, x[0]);
  LoadBf16x8(q + 256 + lane * 8, x[1]);
  const float squares = WarpSum(SquaresOf(x[1], SquaresOf(x[0], 0)));
  const float inverse = InverseRms(squares, kKvRowElements, eps);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int i = 0; i < 8; ++i) x[half][i] = RoundBf16(__fmul_rn(x[half][i], inverse));
  }
  RotateTail(x[1], rope, lane);
  if (quantize) {
    QuantizeQuery(x[0]);
    QuantizeQuery(x[1]);
  }
  StoreBf16x8(x[0], q + lane * 8);
  StoreBf16x8(x[1], q + 256 + lane * 8);
}

__device__ __forceinline__ void PrepareIndexHead(uint2* q, const float* rope, int lane) {
  const uint2 in = q[lane];
  float x[4] = {Bf16Low(in.x), Bf16High(in.x), Bf16Low(in.y), Bf16High(in.y)};
  RotateTail(x, rope, lane);
  Hadamard(x, lane);
  uint32_t codes[4];
  const float scale = __uint_as_float(QuantizeFp4(x, codes) << 23);
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = DecodeE2M1(codes[i]) * scale;
  q[lane] = make_uint2(Bf16x2(x[0], x[1]), Bf16x2(x[2], x[3]));
}

__global__ void __launch_bounds__(kWarps * 32)
    qkv_prepare_kernel(const __grid_constant__ QkvPrepareParams p,
                       const __grid_constant__ StepRows step) {
  LetSuccessorStart();
  const int lane = threadIdx.x % 32;
  const int64_t unit = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const int64_t t = unit / RowUnits(p);
  const int64_t part = unit % RowUnits(p) - p.heads;  // 0 is the key/value, index heads follow
  // No wait: the step's tables were written before the projections started.
  int32_t sequence = -1, block = 0;
  int64_t position = 0;
  if (part == 0 && t < step.rows) {
    PrefetchLine(p.kv_norm + lane * (kKvRowElements / 32));
    sequence = step.sequence_of[t];
    if (sequence >= 0) {
      position = step.positions[t];
      block = step.sequences[sequence].window_blocks[position / kWindowBlockTokens];
    }
  }
  WaitForPredecessors();
  if (t >= step.rows) return;
  const float* const compressed = step.rope.compressed + t * kKvRopeElements;
  const float* const rope = p.compressed_rope ? compressed : step.rope.window + t * kKvRopeElements;
  if (part < 0) {
    uint16_t* const q = static_cast<uint16_t*>(p.q);
    PrepareHead(q + (t * p.heads + part + p.heads) * kKvRowElements, p.eps, rope,
                p.window.format == RowFormat::kFp8PerTensor, lane);
  } else if (part > 0) {
    uint16_t* const q = static_cast<uint16_t*>(p.index_q);
    PrepareIndexHead(
        reinterpret_cast<uint2*>(q + (t * p.index_heads + part - 1) * kIndexKeyElements),
        compressed, lane);
  } else if (sequence >= 0) {
    const uint16_t* const kv = static_cast<const uint16_t*>(p.kv) + t * kKvRowElements;
    float x[2][8];
    LoadBf16x8(kv + lane * 8, x[0]);
    LoadBf16x8(kv + 256 + lane * 8, x[1]);
    NormRopeStoreKvRow(x, p.kv_norm, p.eps, rope, p.window, block, position % kWindowBlockTokens,
                       lane);
  }
}

void LaunchQkvPrepare(const LaunchContext& context, const QkvPrepareParams& params) {
  const int64_t units = params.step->rows * RowUnits(params);
  const auto blocks = static_cast<unsigned>((units + kWarps - 1) / kWarps);
  LaunchOverlapped(CudaStreamOf(context), dim3(blocks), kWarps * 32, 0, qkv_prepare_kernel, params,
                   *params.step);
}

}  // namespace sm12x::qkv_prepare
using namespace sm12x::qkv_prepare;  // NOLINT: of this file alone

constinit const KernelEntry kSm12xQkvPrepare =
    MakeSm12xEntry<QkvPrepareParams, &LaunchQkvPrepare, &SupportsSm12xRows<QkvPrepareParams>>(
        "sm12x.qkv_prepare", 1);

}  // namespace dsv4
