// SPDX-License-Identifier: Apache-2.0
// hc_pre: the mixing numbers m = fn . streams, sigmoid and Sinkhorn, x = sum_h pre[h] streams[h],
// RMSNorm and its quantised form.
// Contract: kernels/op/hyper_connection.h; hidden a multiple of 128.
// Roofline: fn (96 D bytes a quarter, 1.57 MB at D = 4096) once a call and 8 D + 3 D bytes a row:
// latency at one row, bandwidth at many.
// Plan: hc_pre_mix_kernel, a block per 256 columns and some rows, with its part of fn in registers,
// asked for before the streams are there; hc_pre_kernel, a block a row, adds its sums up. Then
// eight warps have x to normalise, and one the 20 dependent steps of Sinkhorn, by one lane
// (shuffles would be half of their time), which the others need not wait for.
// Measured on an H200, D = 4096, fn not in L2: 8.4 us at a row, 8.9 at 16, 16 at 64, 262 at 4096.
// Shared memory: 8 D bytes of streams and 3.2 D of sums.
// Edge cases: padding rows are rows.
#include "kernels/op/hyper_connection.h"
#include "kernels/sm12x/entries.h"
#include "kernels/sm12x/launch.h"
#include "kernels/sm12x/stream_mix.cuh"

namespace dsv4 {
namespace {

using sm12x::kStreamCount;

constexpr int kMixes = 24;

__global__ void __launch_bounds__(sm12x::kMixWarps * 32)
    hc_pre_mix_kernel(const __grid_constant__ HcPreParams p, sm12x::TwoFloat* chunk_sums) {
  sm12x::MixChunk<kMixes>(static_cast<const uint16_t*>(p.streams), nullptr, p.rows,
                          kStreamCount * p.hidden, p.fn, chunk_sums);
}

// To about an ulp.
__device__ __forceinline__ float Reciprocal(float x) {
  float out;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
}

// Factors u, v of `iterations` column normalisations of k with row normalisations between them: the
// result is u[h] k[h][j] v[j]. On the factors errors do not pile up, as they would on the matrix:
// every step sees what the others have left.
__device__ void Sinkhorn(const float (&k)[16], int iterations, float eps, float (&u)[4],
                         float (&v)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) u[i] = v[i] = 1;
  for (int i = 0; i < iterations; ++i) {
    if (i > 0) {
#pragma unroll
      for (int h = 0; h < 4; ++h) {
        float sum = k[4 * h] * v[0];
#pragma unroll
        for (int j = 1; j < 4; ++j) sum = fmaf(k[4 * h + j], v[j], sum);
        u[h] *= Reciprocal(fmaf(sum, u[h], eps));
      }
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float sum = k[j] * u[0];
#pragma unroll
      for (int h = 1; h < 4; ++h) sum = fmaf(k[4 * h + j], u[h], sum);
      v[j] *= Reciprocal(fmaf(sum, v[j], eps));
    }
  }
}

// Column normalisations in double: what the factors' f32 leaves of an error, these nearly undo.
constexpr int kDoubleIterations = 3;

// One warp. Lanes 0 to 3: post; lanes 16 to 31: an element of comb each, its softmax, and after one
// lane has found the factors of the first column normalisations, the last ones with the row
// normalisations before them. In double, since an error of theirs scales a whole row.
__device__ void PostAndComb(const HcPreParams& p, int64_t row, const float* m) {
  __shared__ float softmax[16], factors[8];
  const int lane = threadIdx.x % 32, i = lane - 16, o = lane < 4 ? 4 + lane : 8 + max(i, 0);
  const auto logit = [&](int at) {
    return static_cast<double>(m[at]) * p.scale[at < 8 ? 1 : 2] + p.base[at];
  };
  const auto row_sum = [](double x) {  // over the four lanes of a row of comb
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
  };
  const auto column_sum = [](double x) {
    x += __shfl_xor_sync(0xffffffffu, x, 4);
    return x + __shfl_xor_sync(0xffffffffu, x, 8);
  };
  double weight = 0;
  if (lane < 4) {
    p.post[row * kStreamCount + lane] = static_cast<float>(2 * sm12x::Sigmoid(logit(o)));
  } else if (i >= 0) {
    const int first = o / 4 * 4;  // of its row
    double top = logit(first);
    for (int j = 1; j < 4; ++j) top = fmax(top, logit(first + j));
    weight = exp(logit(o) - top);
  }
  weight = weight / row_sum(weight) + p.hc_eps;  // lanes 0 to 15 have nothing to say
  if (i >= 0) softmax[i] = static_cast<float>(weight);
  __syncwarp();
  const int by_factors = max(p.sinkhorn_iters - kDoubleIterations, 0);
  if (lane == 0) {
    float k[16], u[4], v[4];
#pragma unroll
    for (int j = 0; j < 16; ++j) k[j] = softmax[j];
    Sinkhorn(k, by_factors, p.hc_eps, u, v);
#pragma unroll
    for (int j = 0; j < 4; ++j) factors[j] = u[j], factors[4 + j] = v[j];
  }
  __syncwarp();
  if (i >= 0) weight *= static_cast<double>(factors[i / 4]) * factors[4 + i % 4];
  for (int iteration = by_factors; iteration < p.sinkhorn_iters; ++iteration) {
    if (iteration > 0) weight /= row_sum(weight) + p.hc_eps;
    weight /= column_sum(weight) + p.hc_eps;
  }
  if (i >= 0) p.comb[row * 16 + i] = static_cast<float>(weight);
}

constexpr int kThreads = sm12x::kNormThreads + 32;

__global__ void __launch_bounds__(kThreads)
    hc_pre_kernel(const __grid_constant__ HcPreParams p, const sm12x::TwoFloat* chunk_sums) {
  extern __shared__ __align__(16) std::byte shared[];
  __shared__ sm12x::TwoFloat sums[sm12x::MixSums(kMixes)], scratch[sm12x::kNormThreads / 32];
  __shared__ float pre[kStreamCount], m[kMixes];
  const int64_t row = blockIdx.x, dim = p.hidden, width = kStreamCount * dim;
  auto* const streams = reinterpret_cast<uint16_t*>(shared);
  auto* const row_sums = reinterpret_cast<sm12x::TwoFloat*>(shared + width * kActBytes);
  // The streams are not of the kernel before, but older.
  sm12x::CopyAllAsync(streams, static_cast<const uint16_t*>(p.streams) + row * width,
                      width * kActBytes, kThreads);
  sm12x::PrefetchLines(p.norm, dim * 2, kThreads);
  sm12x::PrefetchLines(p.base, kMixes * 4, kThreads);
  sm12x::PrefetchLines(p.scale, 12, kThreads);
  sm12x::BeginAfterPredecessors();
  const int64_t row_bytes = sm12x::MixRowBytes(width, kMixes);
  sm12x::CopyAllAsync(row_sums, reinterpret_cast<const std::byte*>(chunk_sums) + row * row_bytes,
                      row_bytes, kThreads);
  sm12x::CommitCopies();
  sm12x::WaitForCopies<0>();
  __syncthreads();
  sm12x::SumChunks<kMixes, kThreads / 32>(row_sums, static_cast<int>(width / sm12x::kMixChunk),
                                          sums);
  __syncthreads();
  const int lane = threadIdx.x % 32;
  if (threadIdx.x >= sm12x::kNormThreads) {
    if (lane < kMixes) {
      m[lane] = sm12x::MixingNumber(sums[lane], sums[kMixes], width, p.norm_eps);
    }
    __syncwarp();
    PostAndComb(p, row, m);
    return;
  }
  if (threadIdx.x < kStreamCount) {
    const double logit = sm12x::MixingNumber(sums[lane], sums[kMixes], width, p.norm_eps);
    pre[lane] = static_cast<float>(sm12x::Sigmoid(logit * p.scale[0] + p.base[lane]) + p.hc_eps);
  }
  sm12x::SyncNormThreads();
  sm12x::SumStreams(streams, pre, dim, streams);
  sm12x::SyncNormThreads();
  sm12x::NormalizeRow(
      streams, dim, p.norm, p.norm_eps, static_cast<uint16_t*>(p.normed) + row * dim,
      static_cast<uint8_t*>(p.quantized) + row * sm12x::QuantizedRowBytes(dim), scratch);
}

absl::Status SupportsHcPre(const HcPreParams& p) {
  if (p.hidden % 128 != 0) return Unsupported("hidden ", p.hidden, " is not a multiple of 128");
  if (p.hidden > sm12x::kMostHidden) {
    return Unsupported("hidden ", p.hidden, " is above ", sm12x::kMostHidden);
  }
  return absl::OkStatus();
}

int64_t HcPreWorkspace(const HcPreParams& p, int) {
  return p.rows * sm12x::MixRowBytes(kStreamCount * p.hidden, kMixes);
}

void LaunchHcPre(const LaunchContext& context, const HcPreParams& params) {
  auto* const chunk_sums = reinterpret_cast<sm12x::TwoFloat*>(context.workspace);
  const cudaStream_t stream = CudaStreamOf(context);
  sm12x::LaunchOverlapped(stream,
                          sm12x::MixGrid(context, kStreamCount * params.hidden, params.rows),
                          sm12x::kMixWarps * 32, 0, hc_pre_mix_kernel, params, chunk_sums);
  sm12x::LaunchOverlapped(stream, dim3(static_cast<unsigned>(params.rows)), kThreads,
                          sm12x::RowSharedBytes(params.hidden, kMixes), hc_pre_kernel, params,
                          chunk_sums);
}

}  // namespace

constinit const KernelEntry kSm12xHcPre =
    MakeSm12xEntry<HcPreParams, &LaunchHcPre, &SupportsHcPre, &HcPreWorkspace>("sm12x.hc_pre", 2);

}  // namespace dsv4
