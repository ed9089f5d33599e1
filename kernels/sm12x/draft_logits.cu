// SPDX-License-Identifier: Apache-2.0
// draft_logits: for a few rows, logits[row] += weight . embed[token] and confidences[row] =
//   confidence . [state; embed[token]].
// Contract: kernels/op/draft_logits.h; rank and hidden are multiples of 8.
// Roofline: 2 vocab rank bytes of weights a call (66 MB for V4 Flash, which a large enough L2 keeps
//   from one draft to the next) and 8 vocab bytes of logits a row. Bound by bandwidth.
// Plan: block (part of the vocabulary, row) of 8 warps. A warp computes one logit at a time, eight
//   elements a lane and step, and adds up lanes by shuffles. The row's first block also computes
//   its confidence. The order of sums depends on rank and hidden alone.
// Edge cases: skips rows below 0 and tokens that were not chosen.
#include "kernels/op/draft_logits.h"
#include "kernels/sm12x/bf16.cuh"
#include "kernels/sm12x/entries.h"
#include "kernels/sm12x/launch.h"
#include "kernels/sm12x/overlapped_launch.cuh"

namespace dsv4 {
namespace sm12x::draft_logits {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

__device__ __forceinline__ float AddLanes(float value) {
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(~0u, value, lanes);
  return value;
}

// The partial sum of a . b over the elements of thread `thread` of `threads`.
__device__ __forceinline__ float ShareOfDot(const uint16_t* a, const uint16_t* b, int64_t count,
                                            int thread, int threads) {
  float sum = 0;
#pragma unroll 1
  for (int64_t at = thread * 8; at < count; at += threads * 8) {
    float x[8], y[8];
    sm12x::LoadBf16x8(a + at, x);
    sm12x::LoadBf16x8(b + at, y);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = __fmaf_rn(x[i], y[i], sum);
  }
  return sum;
}

__global__ void __launch_bounds__(kThreads)
    draft_logits_kernel(const __grid_constant__ DraftLogitsParams p) {
  __shared__ float warp_sums[kWarps];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  sm12x::BeginAfterPredecessors();
  const int64_t row = p.row_of[blockIdx.y];
  if (row < 0) return;
  int64_t token = p.tokens[blockIdx.y];
  if (token < 0) token = p.chosen[-1 - token];
  if (token < 0) return;
  const uint16_t* const embedded = p.embed + token * p.rank;
  float* const logits = p.logits + row * p.vocab;
#pragma unroll 1
  for (int64_t n = int64_t{blockIdx.x} * kWarps + warp; n < p.vocab; n += gridDim.x * kWarps) {
    const float sum = AddLanes(ShareOfDot(p.weight + n * p.rank, embedded, p.rank, lane, 32));
    if (lane == 0) logits[n] += sum;
  }
  if (blockIdx.x != 0) return;
  const auto* const state = static_cast<const uint16_t*>(p.states) + row * p.hidden;
  const float share =
      ShareOfDot(p.confidence, state, p.hidden, static_cast<int>(threadIdx.x), kThreads) +
      ShareOfDot(p.confidence + p.hidden, embedded, p.rank, static_cast<int>(threadIdx.x),
                 kThreads);
  const float sum = AddLanes(share);
  if (lane == 0) warp_sums[warp] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  float total = 0;
  for (int i = 0; i < kWarps; ++i) total += warp_sums[i];
  p.confidences[row] = total;
}

absl::Status Supports(const DraftLogitsParams& p) {
  constexpr int32_t kMostRows = 65535;  // of a grid, in y
  if (p.rows > kMostRows) return Unsupported(p.rows, " rows; at most ", kMostRows);
  if (p.rank % 8 == 0 && p.hidden % 8 == 0) return absl::OkStatus();
  return Unsupported("rank ", p.rank, " or hidden ", p.hidden, " is not a multiple of 8");
}

void Launch(const LaunchContext& context, const DraftLogitsParams& p) {
  constexpr int kBlocks = 4;  // for each multiprocessor
  const int64_t blocks = std::min<int64_t>((p.vocab + kWarps - 1) / kWarps,
                                           int64_t{context.multiprocessors} * kBlocks);
  sm12x::LaunchOverlapped(CudaStreamOf(context),
                          dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(p.rows)),
                          kThreads, 0, draft_logits_kernel, p);
}

}  // namespace sm12x::draft_logits
using namespace sm12x::draft_logits;  // NOLINT: of this file alone

constinit const KernelEntry kSm12xDraftLogits =
    MakeSm12xEntry<DraftLogitsParams, &Launch, &Supports>("sm12x.draft_logits", 1);

}  // namespace dsv4
