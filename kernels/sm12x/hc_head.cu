// SPDX-License-Identifier: Apache-2.0
// hc_head: pre = sigmoid(fn . streams) of the chosen rows, their streams' weighted sum, RMSNorm.
// Contract: kernels/op/hyper_connection.h; hidden a multiple of 128.
// Roofline: 16 D bytes of fn (0.26 MB at D = 4096) once a call and 8 D + 2 D a row: latency.
// Plan: as hc_pre's, with 4 outputs.
// Edge cases: row_of null is the first rows.
#include "kernels/op/hyper_connection.h"
#include "kernels/sm12x/entries.h"
#include "kernels/sm12x/launch.h"
#include "kernels/sm12x/stream_mix.cuh"

namespace dsv4 {
namespace {

using sm12x::kStreamCount;

__global__ void __launch_bounds__(sm12x::kMixWarps * 32)
    hc_head_mix_kernel(const __grid_constant__ HcHeadParams p, sm12x::TwoFloat* partial) {
  sm12x::MixChunk<kStreamCount>(static_cast<const uint16_t*>(p.streams), p.row_of, p.rows,
                                kStreamCount * p.hidden, p.fn, partial);
}

__global__ void __launch_bounds__(sm12x::kNormThreads)
    hc_head_kernel(const __grid_constant__ HcHeadParams p, const sm12x::TwoFloat* partial) {
  extern __shared__ __align__(16) uint16_t x[];
  __shared__ float pre[kStreamCount];
  __shared__ sm12x::TwoFloat scratch[sm12x::kNormThreads / 32];
  const int64_t row = blockIdx.x, dim = p.hidden;
  const int64_t source = p.row_of == nullptr ? row : p.row_of[row];
  const int64_t chunks = kStreamCount * dim / sm12x::kMixChunk;
  if (threadIdx.x < kStreamCount) {
    const int i = threadIdx.x;
    const float m = sm12x::MixedOutput<kStreamCount>(
        partial + row * chunks * sm12x::MixPartials(kStreamCount), chunks, p.norm_eps);
    pre[i] = static_cast<float>(sm12x::Sigmoid(static_cast<double>(m) * p.scale[0] + p.base[i]) +
                                p.hc_eps);
  }
  __syncthreads();
  sm12x::SumStreams(static_cast<const uint16_t*>(p.streams) + source * kStreamCount * dim, pre, dim,
                    x);
  __syncthreads();
  sm12x::NormalizeRow(x, dim, p.norm, p.norm_eps, static_cast<uint16_t*>(p.normed) + row * dim,
                      nullptr, scratch);
}

absl::Status SupportsHcHead(const HcHeadParams& p) {
  constexpr int64_t kLargest = 16384;  // as hc_pre
  if (p.hidden % 128 != 0) return Unsupported("hidden ", p.hidden, " is not a multiple of 128");
  if (p.hidden > kLargest) return Unsupported("hidden ", p.hidden, " is above ", kLargest);
  return absl::OkStatus();
}

int64_t HcHeadWorkspace(const HcHeadParams& p, int) {
  return sm12x::MixWorkspaceBytes(p.rows, kStreamCount * p.hidden, kStreamCount);
}

void LaunchHcHead(const LaunchContext& context, const HcHeadParams& params) {
  auto* const partial = reinterpret_cast<sm12x::TwoFloat*>(context.workspace);
  const dim3 mix_grid(
      static_cast<unsigned>(kStreamCount * params.hidden / sm12x::kMixChunk),
      static_cast<unsigned>((params.rows + sm12x::kMixRowTile - 1) / sm12x::kMixRowTile));
  const cudaStream_t stream = CudaStreamOf(context);
  hc_head_mix_kernel<<<mix_grid, sm12x::kMixWarps * 32, 0, stream>>>(params, partial);
  hc_head_kernel<<<params.rows, sm12x::kNormThreads, static_cast<size_t>(params.hidden) * 2,
                   stream>>>(params, partial);
}

}  // namespace

constinit const KernelEntry kSm12xHcHead =
    MakeSm12xEntry<HcHeadParams, &LaunchHcHead, &SupportsHcHead, &HcHeadWorkspace>("sm12x.hc_head",
                                                                                   1);

}  // namespace dsv4
