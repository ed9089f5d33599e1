// SPDX-License-Identifier: Apache-2.0
// moe_gate: scores sqrt(softplus(gate . x)); the K experts with the highest score + bias, or those
// of the token's hash; their weights.
//
// Contract: kernels/op/moe.h; the gate packed (packed_layout.h), at most 1024 experts.
//
// Roofline: 2 E D bytes of weights a call (2 MB at 256 x 4096). Bound by latency at few rows.
// Measurements: docs/kernels.md.
//
// Plan: K is cut into runs of four K slices of 128 elements. The sums of runs are added in
// ascending order for any number of rows.
// - Up to 256 rows: a block of gate_products_kernel has a tile of 16 experts and a run. It loads
//   its weights before the rows are ready, multiplies eight rows at a time and stores the run's
//   sums.
// - Up to 2,560 rows, if K is whole runs: the linears' GEMM stores the sums of runs; each run is an
//   item.
// - Else: the linears' GEMM also adds up the runs.
// - A gate in a block format: block_products.h gives the logits.
// - A block of select_experts_kernel has one row and adds up its runs. One warp then keeps
//   score + bias in registers and takes the largest K times.
//
// Edge cases: of equal sums, the lowest expert wins; a NaN counts as the smallest, so that every
// row gets valid experts; padding rows get expert -1.
#include "kernels/op/moe.h"

#include <algorithm>

#include "kernels/sm12x/block_products.h"
#include "kernels/sm12x/entries.h"
#include "kernels/sm12x/launch.h"
#include "kernels/sm12x/linear.cuh"
#include "kernels/sm12x/overlapped_launch.cuh"
#include "lib/base/checked_math.h"

namespace dsv4 {
namespace sm12x::moe_gate {

using sm12x::kTileRows;
using KSlices = sm12x::Bf16Slices;

constexpr uint32_t kAllLanes = 0xffffffffu;
constexpr int64_t kMaxExperts = 1024;
constexpr int kWarps = 4;     // of a block of gate_products_kernel: the K slices of a run
constexpr int kPassRows = 8;  // rows that it takes at a time
constexpr int kSelectThreads = 256;
constexpr int32_t kFewRows = 256;  // most rows for gate_products_kernel
// Most rows for which the sums of runs go through memory. For more, logits do.
constexpr int32_t kRunRows = 2560;

struct GateShape {
  int tiles, slices;  // of experts; of K
  int runs;           // in memory; 1: logits are
  constexpr int64_t Width() const { return int64_t{tiles} * kTileRows; }
  constexpr int64_t FloatsOfRow() const { return runs * Width(); }
};
constexpr GateShape ShapeOf(const MoeGateParams& p) {
  const auto slices = static_cast<int>(p.gate.k / sm12x::kKSlice);
  const bool sums =
      !p.gate.in_blocks() && (p.rows <= kFewRows || (p.rows <= kRunRows && slices % kWarps == 0));
  return {static_cast<int>(CeilDiv(p.gate.n, int64_t{kTileRows})), slices,
          sums ? CeilDiv(slices, kWarps) : 1};
}

// Block (tile, run of K slices, some rows): sums[row][run][expert].
__global__ void __launch_bounds__(kWarps * 32)
    gate_products_kernel(const __grid_constant__ MoeGateParams p, GateShape shape, float* sums) {
  sm12x::LetSuccessorStart();
  __shared__ float products[kWarps][kPassRows][kTileRows + 4];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int slice = blockIdx.y * kWarps + warp;
  const bool live = slice < shape.slices;
  KSlices::Raw raw{};
  if (live) KSlices::Cursor(p.gate, blockIdx.x, lane).Load(slice, &raw);
  sm12x::WaitForPredecessors();
  if (p.calls != nullptr && blockIdx.x + blockIdx.y + blockIdx.z + threadIdx.x == 0) ++*p.calls;
  const std::byte* x = static_cast<const std::byte*>(p.x) + int64_t{slice} * KSlices::kSliceBytes;
  const int64_t row_bytes = p.gate.k * kActBytes;
  for (int first = blockIdx.z * kPassRows; first < p.rows; first += gridDim.z * kPassRows) {
    if (live) {
      uint32_t b[KSlices::kBWords];
      sm12x::LoadActs<KSlices>(x + min(first + g, p.rows - 1) * row_bytes, t, b);
      float sum[4];
      sm12x::SliceProduct(raw.Unpacked(), b, sum);
#pragma unroll
      for (int i = 0; i < 4; ++i) products[warp][2 * t + i % 2][g + i / 2 * 8] = sum[i];
    }
    __syncthreads();
    const int row = threadIdx.x / kTileRows, expert = threadIdx.x % kTileRows;
    if (first + row < p.rows) {
      float sum = 0;
      for (int w = 0; w < min(kWarps, shape.slices - static_cast<int>(blockIdx.y) * kWarps); ++w) {
        sum = __fadd_rn(sum, products[w][row][expert]);
      }
      sums[(first + row) * shape.FloatsOfRow() + blockIdx.y * shape.Width() +
           blockIdx.x * kTileRows + expert] = sum;
    }
    __syncthreads();
  }
}
static_assert(kWarps * 32 == kPassRows * kTileRows);

__global__ void count_call_kernel(uint32_t* calls) {
  sm12x::BeginAfterPredecessors();
  ++*calls;
}

__device__ __forceinline__ float Score(float x) {
  return sqrtf(fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))));
}

// Maps floats to positive integers in the same order; NaN counts as -inf.
__device__ __forceinline__ uint32_t OrderedKey(float value) {
  const uint32_t bits = __float_as_uint(isnan(value) ? -INFINITY : value);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// One block a row; lane l of its first warp takes experts l + 32 i, i < kPerLane.
template <int kPerLane>
__global__ void __launch_bounds__(kSelectThreads)
    select_experts_kernel(const __grid_constant__ MoeGateParams p, GateShape shape,
                          const float* sums) {
  sm12x::LetSuccessorStart();
  __shared__ float logits[kPerLane * 32];
  __shared__ uint32_t ordered[kPerLane * 32];
  const int64_t row = blockIdx.x;
  const int32_t experts = static_cast<int32_t>(p.gate.n), k = p.experts_per_token;
  constexpr int kPerThread = (kPerLane * 32 + kSelectThreads - 1) / kSelectThreads;
  float bias[kPerThread];
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const int e = threadIdx.x + i * kSelectThreads;
    bias[i] = p.tid2eid == nullptr && e < experts ? p.bias[e] : 0.0f;
  }
  sm12x::WaitForPredecessors();
  if (p.sequence_of != nullptr && p.sequence_of[row] < 0) {
    if (threadIdx.x < k) {
      p.experts[row * k + threadIdx.x] = -1;
      p.weights[row * k + threadIdx.x] = 0;
    }
    return;
  }
  sums += row * shape.FloatsOfRow();
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const int e = threadIdx.x + i * kSelectThreads;
    if (e >= experts) continue;
    float sum = 0;
#pragma unroll 8
    for (int run = 0; run < shape.runs; ++run) {
      sum = __fadd_rn(sum, sums[run * shape.Width() + e]);
    }
    logits[e] = sum;
    ordered[e] = OrderedKey(Score(logits[e]) + bias[i]);
  }
  __syncthreads();
  const int32_t lane = static_cast<int32_t>(threadIdx.x);
  if (lane >= 32) return;
  int32_t chosen = 0;  // in lane i, the i-th expert
  if (p.tid2eid != nullptr) {
    if (lane < k) chosen = p.tid2eid[int64_t{p.tokens[row]} * k + lane];
  } else {
    uint32_t keys[kPerLane];  // 0: taken, or no expert
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int32_t e = lane + 32 * i;
      keys[i] = e < experts ? ordered[e] : 0;
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
  const float score = lane < k ? Score(logits[chosen]) : 0.0f;
  float sum = 0;
  for (int32_t i = 0; i < k; ++i) sum = __fadd_rn(sum, __shfl_sync(kAllLanes, score, i));
  if (lane < k) {
    if (p.counts != nullptr) {
      ExpertCounts* const counts = p.counts + chosen;
      if (atomicExch(&counts->last, *p.calls) != *p.calls) atomicAdd(&counts->calls, 1u);
    }
    p.experts[row * k + lane] = chosen;
    p.weights[row * k + lane] = __fmul_rn(__fdiv_rn(score, sum), p.routed_scale);
  }
}

absl::Status Supports(const MoeGateParams& p) {
  return p.gate.n <= kMaxExperts ? absl::OkStatus()
                                 : Unsupported(p.gate.n, " experts, at most ", kMaxExperts);
}

int64_t Workspace(const MoeGateParams& p, int) {
  // The largest of any number of rows up to p.rows: fewer rows may need more.
  int64_t floats = 0;
  for (const int32_t rows : {p.rows, std::min(p.rows, kRunRows), std::min(p.rows, kFewRows)}) {
    MoeGateParams fewer = p;
    fewer.rows = rows;
    floats = std::max(floats, rows * ShapeOf(fewer).FloatsOfRow());
  }
  return RoundUp(floats * static_cast<int64_t>(sizeof(float)), int64_t{16}) +
         (IsQuantised(p.gate.blocks) ? sm12x::RoundedBytes(p.rows, p.gate.k) : 0);
}

void Launch(const LaunchContext& context, const MoeGateParams& p) {
  constexpr int kBlocks = 6;  // for each multiprocessor, if there are rows for them
  const cudaStream_t stream = CudaStreamOf(context);
  const GateShape shape = ShapeOf(p);
  auto* const sums = reinterpret_cast<float*>(context.workspace);
  if (p.gate.in_blocks()) {
    if (p.calls != nullptr) {
      sm12x::LaunchOverlapped(stream, dim3(1), 1, 0, count_call_kernel, p.calls);
    }
    sm12x::BlockJob job;
    job.rows = p.rows;
    job.k = p.gate.k;
    job.x = static_cast<const std::byte*>(p.x);
    job.row_bytes = p.gate.k * kActBytes;
    job.part_count = 1;
    job.parts[0] = {.data = p.gate.block_weight().data,
                    .n = p.gate.n,
                    .y = sums,
                    .width = shape.FloatsOfRow(),
                    .bf16 = false};
    if (IsQuantised(p.gate.blocks)) {
      const int64_t logits = p.rows * shape.FloatsOfRow() * static_cast<int64_t>(sizeof(float));
      sm12x::LaunchRounding(context, p.rows, p.gate.k,
                            context.workspace + RoundUp(logits, int64_t{16}), &job);
    }
    sm12x::LaunchBlocks(context, p.gate.blocks, job);
  } else if (p.rows <= kFewRows) {
    const int turns =
        std::min(CeilDiv(p.rows, kPassRows),
                 CeilDiv(context.multiprocessors * kBlocks, shape.tiles * shape.runs));
    const dim3 blocks(static_cast<unsigned>(shape.tiles), static_cast<unsigned>(shape.runs),
                      static_cast<unsigned>(turns));
    sm12x::LaunchOverlapped(stream, blocks, kWarps * 32, 0, gate_products_kernel, p, shape, sums);
  } else {
    if (p.calls != nullptr) {
      sm12x::LaunchOverlapped(stream, dim3(1), 1, 0, count_call_kernel, p.calls);
    }
    sm12x::LinearJob<KSlices> job;
    job.rows = p.rows;
    job.x = static_cast<const std::byte*>(p.x);
    job.row_bytes = p.gate.k * kActBytes;
    job.part_count = 1;
    job.run_width = shape.Width();
    job.parts[0] = {p.gate, sums, /*bf16=*/false, shape.FloatsOfRow()};
    if (shape.runs > 1) {
      sm12x::LaunchLinear<KSlices, -kWarps>(context, job, sm12x::kByRule);
    } else {
      sm12x::LaunchLinear<KSlices, kWarps>(context, job, sm12x::kByRule);
    }
  }
  const auto select = p.gate.n <= 256 ? select_experts_kernel<8> : select_experts_kernel<32>;
  sm12x::LaunchOverlapped(stream, dim3(static_cast<unsigned>(p.rows)), kSelectThreads, 0, select, p,
                          shape, sums);
}

}  // namespace sm12x::moe_gate
using namespace sm12x::moe_gate;  // NOLINT: of this file alone

constinit const KernelEntry kSm12xMoeGate =
    MakeSm12xEntry<MoeGateParams, &Launch, &Supports, &Workspace>("sm12x.moe_gate", 4);

}  // namespace dsv4
