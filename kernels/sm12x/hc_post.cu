// SPDX-License-Identifier: Apache-2.0
// hc_post: out[t, j] = post[t, j] y[t] + sum_h comb[t, h, j] streams[t, h]; and mtp_combine:
// streams[t, h] = e[t] + h[t, h].
// Contract: kernels/op/hyper_connection.h; hidden a multiple of 8.
// Roofline: 2 D + 8 D bytes in and 8 D out a row: latency at one row, bandwidth at many.
// Plan: a thread has 8 columns of a row, all streams of them, so that out may be streams; blocks of
// 128 threads, so that one row of 4096 spreads over 4 multiprocessors.
// Edge cases: padding rows are rows.
#include "kernels/op/hyper_connection.h"
#include "kernels/sm12x/bf16.cuh"
#include "kernels/sm12x/entries.h"
#include "kernels/sm12x/launch.h"
#include "kernels/sm12x/two_float.cuh"

namespace dsv4 {
namespace {

constexpr int kThreads = 128, kStreamCount = 4, kColumns = 8;

__global__ void __launch_bounds__(kThreads) hc_post_kernel(const __grid_constant__ HcPostParams p) {
  const int64_t row = blockIdx.x, dim = p.hidden;
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * kColumns;
  if (column >= dim) return;
  float x[kStreamCount][kColumns], y[kColumns];
  sm12x::LoadBf16x8(static_cast<const uint16_t*>(p.y) + row * dim + column, y);
  const uint16_t* streams = static_cast<const uint16_t*>(p.streams) + row * kStreamCount * dim;
#pragma unroll
  for (int h = 0; h < kStreamCount; ++h) sm12x::LoadBf16x8(streams + h * dim + column, x[h]);
  const float* comb = p.comb + row * kStreamCount * kStreamCount;
  uint16_t* out = static_cast<uint16_t*>(p.out) + row * kStreamCount * dim;
#pragma unroll
  for (int j = 0; j < kStreamCount; ++j) {
    float mixed[kColumns];
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      sm12x::TwoFloat sum;
      sum.AddProduct(p.post[row * kStreamCount + j], y[i]);
#pragma unroll
      for (int h = 0; h < kStreamCount; ++h) {
        sum.AddProduct(comb[h * kStreamCount + j], x[h][i]);
      }
      mixed[i] = sum.Rounded();
    }
    sm12x::StoreBf16x8(mixed, out + j * dim + column);
  }
}

__global__ void __launch_bounds__(kThreads)
    mtp_combine_kernel(const __grid_constant__ MtpCombineParams p) {
  const int64_t row = blockIdx.x, dim = p.hidden;
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * kColumns;
  if (column >= dim) return;
  float e[kColumns], h[kColumns];
  sm12x::LoadBf16x8(static_cast<const uint16_t*>(p.e) + row * dim + column, e);
#pragma unroll
  for (int stream = 0; stream < kStreamCount; ++stream) {
    const int64_t at = (row * kStreamCount + stream) * dim + column;
    sm12x::LoadBf16x8(static_cast<const uint16_t*>(p.h) + at, h);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) h[i] += e[i];
    sm12x::StoreBf16x8(h, static_cast<uint16_t*>(p.streams) + at);
  }
}

template <class Params>
absl::Status SupportsColumns(const Params& p) {
  return p.hidden % kColumns == 0
             ? absl::OkStatus()
             : Unsupported("hidden ", p.hidden, " is not a multiple of ", kColumns);
}

template <class Params>
dim3 GridOf(const Params& p) {
  constexpr int64_t kBlockColumns = kThreads * kColumns;
  return dim3(static_cast<unsigned>(p.rows),
              static_cast<unsigned>((p.hidden + kBlockColumns - 1) / kBlockColumns));
}

void LaunchHcPost(const LaunchContext& context, const HcPostParams& params) {
  hc_post_kernel<<<GridOf(params), kThreads, 0, CudaStreamOf(context)>>>(params);
}

void LaunchMtpCombine(const LaunchContext& context, const MtpCombineParams& params) {
  mtp_combine_kernel<<<GridOf(params), kThreads, 0, CudaStreamOf(context)>>>(params);
}

}  // namespace

constinit const KernelEntry kSm12xHcPost =
    MakeSm12xEntry<HcPostParams, &LaunchHcPost, &SupportsColumns<HcPostParams>>("sm12x.hc_post", 1);
constinit const KernelEntry kSm12xMtpCombine =
    MakeSm12xEntry<MtpCombineParams, &LaunchMtpCombine, &SupportsColumns<MtpCombineParams>>(
        "sm12x.mtp_combine", 1);

}  // namespace dsv4
