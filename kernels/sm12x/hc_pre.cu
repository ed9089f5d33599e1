// SPDX-License-Identifier: Apache-2.0
// hc_pre: the mixing numbers m = fn . streams, sigmoid and Sinkhorn, x = sum_h pre[h] streams[h],
// RMSNorm and its quantised form.
// Contract: kernels/op/hyper_connection.h; hidden a multiple of 128.
// Roofline: fn (96 D bytes a quarter, 1.57 MB at D = 4096) once a call and 8 D + 3 D bytes a row:
// latency at one row, bandwidth at many.
// Plan: hc_pre_mix_kernel, a block per 256 columns and 16 rows, with its part of fn in registers (24
// outputs over 8 warps), writes partial sums; hc_pre_kernel, a block a row, adds them, has one thread
// for the 20 dependent steps of Sinkhorn (shuffles would be half of their time), and normalises.
// Shared memory: the row x, 2 D bytes.
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
    hc_pre_mix_kernel(const __grid_constant__ HcPreParams p, sm12x::TwoFloat* partial) {
  sm12x::MixChunk<kMixes>(static_cast<const uint16_t*>(p.streams), nullptr, p.rows,
                          kStreamCount * p.hidden, p.fn, partial);
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
        u[h] *= __frcp_rn(fmaf(sum, u[h], eps));
      }
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float sum = k[j] * u[0];
#pragma unroll
      for (int h = 1; h < 4; ++h) sum = fmaf(k[4 * h + j], u[h], sum);
      v[j] *= __frcp_rn(fmaf(sum, v[j], eps));
    }
  }
}

// The first warp. Lanes 0 to 7: pre and post; lanes 16 to 31: an element of comb each, its softmax,
// and after one lane has found the factors of all column normalisations but the last, this last one
// with the row normalisation before it. In double, since an error of theirs scales a whole row.
__device__ void MixingWeights(const HcPreParams& p, int64_t row, const float* m, float* pre) {
  __shared__ float softmax[16], factors[8];
  const int lane = threadIdx.x, o = lane < 16 ? lane : lane - 8;
  const int kind = o < 4 ? 0 : o < 8 ? 1 : 2;
  const auto logit = [&](int at) {
    return static_cast<double>(m[at]) * p.scale[kind] + p.base[at];
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
    pre[o] = static_cast<float>(sm12x::Sigmoid(logit(o)) + p.hc_eps);
  } else if (lane < 8) {
    p.post[row * kStreamCount + o - 4] = static_cast<float>(2 * sm12x::Sigmoid(logit(o)));
  } else if (lane >= 16) {
    const int first = o / 4 * 4;  // of its row
    double top = logit(first);
    for (int j = 1; j < 4; ++j) top = fmax(top, logit(first + j));
    weight = exp(logit(o) - top);
  }
  weight = weight / row_sum(weight) + p.hc_eps;  // lanes 0 to 15 have nothing to say
  const int i = lane - 16;
  if (i >= 0) softmax[i] = static_cast<float>(weight);
  __syncwarp();
  if (lane == 0) {
    float k[16], u[4], v[4];
#pragma unroll
    for (int j = 0; j < 16; ++j) k[j] = softmax[j];
    Sinkhorn(k, p.sinkhorn_iters - 1, p.hc_eps, u, v);
#pragma unroll
    for (int j = 0; j < 4; ++j) factors[j] = u[j], factors[4 + j] = v[j];
  }
  __syncwarp();
  if (i >= 0) weight *= static_cast<double>(factors[i / 4]) * factors[4 + i % 4];
  if (p.sinkhorn_iters > 1) weight /= row_sum(weight) + p.hc_eps;
  weight /= column_sum(weight) + p.hc_eps;
  if (i >= 0) p.comb[row * 16 + i] = static_cast<float>(weight);
}

__global__ void __launch_bounds__(sm12x::kNormThreads)
    hc_pre_kernel(const __grid_constant__ HcPreParams p, const sm12x::TwoFloat* partial) {
  extern __shared__ __align__(16) uint16_t x[];
  __shared__ float m[kMixes], pre[kStreamCount];
  __shared__ sm12x::TwoFloat scratch[sm12x::kNormThreads / 32];
  const int64_t row = blockIdx.x, dim = p.hidden;
  const int64_t chunks = kStreamCount * dim / sm12x::kMixChunk;
  if (threadIdx.x < kMixes) {
    m[threadIdx.x] = sm12x::MixedOutput<kMixes>(partial + row * chunks * sm12x::MixPartials(kMixes),
                                                chunks, p.norm_eps);
  }
  __syncthreads();
  if (threadIdx.x < 32) MixingWeights(p, row, m, pre);
  __syncthreads();
  sm12x::SumStreams(static_cast<const uint16_t*>(p.streams) + row * kStreamCount * dim, pre, dim,
                    x);
  __syncthreads();
  sm12x::NormalizeRow(x, dim, p.norm, p.norm_eps, static_cast<uint16_t*>(p.normed) + row * dim,
                      static_cast<uint8_t*>(p.quantized) + row * sm12x::QuantizedRowBytes(dim),
                      scratch);
}

absl::Status SupportsHcPre(const HcPreParams& p) {
  constexpr int64_t kLargest = 16384;  // x in 48 KB of shared memory, with room for the rest
  if (p.hidden % 128 != 0) return Unsupported("hidden ", p.hidden, " is not a multiple of 128");
  if (p.hidden > kLargest) return Unsupported("hidden ", p.hidden, " is above ", kLargest);
  return absl::OkStatus();
}

int64_t HcPreWorkspace(const HcPreParams& p, int) {
  return sm12x::MixWorkspaceBytes(p.rows, kStreamCount * p.hidden, kMixes);
}

void LaunchHcPre(const LaunchContext& context, const HcPreParams& params) {
  auto* const partial = reinterpret_cast<sm12x::TwoFloat*>(context.workspace);
  const dim3 mix_grid(
      static_cast<unsigned>(kStreamCount * params.hidden / sm12x::kMixChunk),
      static_cast<unsigned>((params.rows + sm12x::kMixRowTile - 1) / sm12x::kMixRowTile));
  const cudaStream_t stream = CudaStreamOf(context);
  hc_pre_mix_kernel<<<mix_grid, sm12x::kMixWarps * 32, 0, stream>>>(params, partial);
  hc_pre_kernel<<<params.rows, sm12x::kNormThreads, static_cast<size_t>(params.hidden) * 2,
                  stream>>>(params, partial);
}

}  // namespace

constinit const KernelEntry kSm12xHcPre =
    MakeSm12xEntry<HcPreParams, &LaunchHcPre, &SupportsHcPre, &HcPreWorkspace>("sm12x.hc_pre", 1);

}  // namespace dsv4
