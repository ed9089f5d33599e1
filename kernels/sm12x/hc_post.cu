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

#include <type_traits>

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
// Columns of a thread. In hc_post arithmetic takes the time of a few rows, so a thread has few
// there. Of many rows, loads take it: a thread reads 16 bytes at a time, and weights for all of
// these.
constexpr int kFewColumns = 2, kManyColumns = 8, kCombineColumns = 8;
constexpr int32_t kFewRows = 128;

template <int kColumns>
__global__ void __launch_bounds__(kThreads) hc_post_kernel(const __grid_constant__ HcPostParams p) {
  using Words = std::conditional_t<kColumns == kManyColumns, uint4, uint32_t>;
  constexpr int kTerms = 1 + kStreamCount, kWords = kColumns / 2;
  union Loaded {
    Words all;
    uint32_t words[kWords];
  };
  sm12x::LetSuccessorStart();
  const int64_t row = blockIdx.x, dim = p.hidden;
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * kColumns;
  sm12x::WaitForPredecessors();
  if (column >= dim) return;
  Loaded x[kTerms];  // y, then the streams
  x[0].all =
      *reinterpret_cast<const Words*>(static_cast<const uint16_t*>(p.y) + row * dim + column);
  const uint16_t* const streams =
      static_cast<const uint16_t*>(p.streams) + row * kStreamCount * dim;
#pragma unroll
  for (int h = 0; h < kStreamCount; ++h) {
    x[1 + h].all = *reinterpret_cast<const Words*>(streams + h * dim + column);
  }
  const float* const post = p.post + row * kStreamCount;
  const float* const comb = p.comb + row * kStreamCount * kStreamCount;
  float weight[kStreamCount][kTerms];
  const auto load_weights = [&](int j) {
    weight[j][0] = post[j];
#pragma unroll
    for (int h = 0; h < kStreamCount; ++h) weight[j][1 + h] = comb[h * kStreamCount + j];
  };
  // The compiler does not move these loads before a store. All of them at once save latency, and
  // take registers that eight columns need.
  constexpr bool kAtOnce = kColumns == kFewColumns;
#pragma unroll
  for (int j = 0; kAtOnce && j < kStreamCount; ++j) load_weights(j);
  uint16_t* const out = static_cast<uint16_t*>(p.out) + row * kStreamCount * dim;
#pragma unroll
  for (int j = 0; j < kStreamCount; ++j) {
    if (!kAtOnce) load_weights(j);
    Loaded sums;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      float pair[kTerms][2];
#pragma unroll
      for (int h = 0; h < kTerms; ++h) {
        pair[h][0] = sm12x::Bf16Low(x[h].words[i]);
        pair[h][1] = sm12x::Bf16High(x[h].words[i]);
      }
      sums.words[i] = sm12x::WeightedSums(weight[j], pair);
    }
    *reinterpret_cast<Words*>(out + j * dim + column) = sums.all;
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
  const bool few = params.rows <= kFewRows;
  sm12x::LaunchOverlapped(CudaStreamOf(context), GridOf(params, few ? kFewColumns : kManyColumns),
                          kThreads, 0,
                          few ? hc_post_kernel<kFewColumns> : hc_post_kernel<kManyColumns>, params);
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
