// SPDX-License-Identifier: Apache-2.0
// hc_post: out[t, j] = post[t, j] y[t] + sum_h comb[t, h, j] streams[t, h]; and mtp_combine:
// streams[t, h] = e[t] + h[t, h].
//
// Contract: kernels/op/hyper_connection.h; hidden a multiple of 8.
//
// Roofline: 2 D + 8 D bytes read and 8 D written a row. Bound by latency at one row, by bandwidth
// at many. Measurements: docs/kernels.md.
//
// Plan: a thread reads some columns of a row of all streams before it writes them, so out may be
// streams.
//
// Edge cases: padding rows are computed like others.
#include "kernels/op/hyper_connection.h"
#include "kernels/sm12x/bf16.cuh"
#include "kernels/sm12x/entries.h"
#include "kernels/sm12x/launch.h"
#include "kernels/sm12x/overlapped_launch.cuh"
#include "kernels/sm12x/stream_mix.cuh"
#include "lib/base/checked_math.h"

namespace dsv4 {
namespace sm12x::hc_post {

using sm12x::kStreamCount;

constexpr int kThreads = 128;
// Columns of a thread. In hc_post arithmetic takes the time of one row, so a thread has few.
constexpr int kColumns = 2, kCombineColumns = 8;

__device__ __forceinline__ void LoadPair(const uint16_t* from, float (&x)[kColumns]) {
  const uint32_t pair = *reinterpret_cast<const uint32_t*>(from);
  x[0] = sm12x::Bf16Low(pair);
  x[1] = sm12x::Bf16High(pair);
}

__global__ void __launch_bounds__(kThreads) hc_post_kernel(const __grid_constant__ HcPostParams p) {
  sm12x::LetSuccessorStart();
  const int64_t row = blockIdx.x, dim = p.hidden;
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * kColumns;
  sm12x::WaitForPredecessors();
  if (column >= dim) return;
  float x[1 + kStreamCount][kColumns];  // y, then the streams
  LoadPair(static_cast<const uint16_t*>(p.y) + row * dim + column, x[0]);
  const uint16_t* streams = static_cast<const uint16_t*>(p.streams) + row * kStreamCount * dim;
#pragma unroll
  for (int h = 0; h < kStreamCount; ++h) LoadPair(streams + h * dim + column, x[1 + h]);
  const float* comb = p.comb + row * kStreamCount * kStreamCount;
  uint16_t* out = static_cast<uint16_t*>(p.out) + row * kStreamCount * dim;
#pragma unroll
  for (int j = 0; j < kStreamCount; ++j) {
    float weight[1 + kStreamCount] = {p.post[row * kStreamCount + j]};
#pragma unroll
    for (int h = 0; h < kStreamCount; ++h) weight[1 + h] = comb[h * kStreamCount + j];
    *reinterpret_cast<uint32_t*>(out + j * dim + column) = sm12x::WeightedSums(weight, x);
  }
}

__global__ void __launch_bounds__(kThreads)
    mtp_combine_kernel(const __grid_constant__ MtpCombineParams p) {
  const int64_t row = blockIdx.x, dim = p.hidden;
  const int64_t column =
      (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * kCombineColumns;
  sm12x::BeginAfterPredecessors();
  if (column >= dim) return;
  float e[kCombineColumns], h[kCombineColumns];
  sm12x::LoadBf16x8(static_cast<const uint16_t*>(p.e) + row * dim + column, e);
#pragma unroll
  for (int stream = 0; stream < kStreamCount; ++stream) {
    const int64_t at = (row * kStreamCount + stream) * dim + column;
    sm12x::LoadBf16x8(static_cast<const uint16_t*>(p.h) + at, h);
#pragma unroll
    for (int i = 0; i < kCombineColumns; ++i) h[i] += e[i];
    sm12x::StoreBf16x8(h, static_cast<uint16_t*>(p.streams) + at);
  }
}

template <class Params>
absl::Status SupportsColumns(const Params& p) {
  return p.hidden % kCombineColumns == 0
             ? absl::OkStatus()
             : Unsupported("hidden ", p.hidden, " is not a multiple of ", kCombineColumns);
}

template <class Params>
dim3 GridOf(const Params& p, int64_t columns) {
  return dim3(static_cast<unsigned>(p.rows),
              static_cast<unsigned>(CeilDiv(p.hidden, columns * kThreads)));
}

void LaunchHcPost(const LaunchContext& context, const HcPostParams& params) {
  sm12x::LaunchOverlapped(CudaStreamOf(context), GridOf(params, kColumns), kThreads, 0,
                          hc_post_kernel, params);
}

void LaunchMtpCombine(const LaunchContext& context, const MtpCombineParams& params) {
  sm12x::LaunchOverlapped(CudaStreamOf(context), GridOf(params, kCombineColumns), kThreads, 0,
                          mtp_combine_kernel, params);
}

}  // namespace sm12x::hc_post
using namespace sm12x::hc_post;  // NOLINT: of this file alone

constinit const KernelEntry kSm12xHcPost =
    MakeSm12xEntry<HcPostParams, &LaunchHcPost, &SupportsColumns<HcPostParams>>("sm12x.hc_post", 1);
constinit const KernelEntry kSm12xMtpCombine =
    MakeSm12xEntry<MtpCombineParams, &LaunchMtpCombine, &SupportsColumns<MtpCombineParams>>(
        "sm12x.mtp_combine", 1);

}  // namespace dsv4
