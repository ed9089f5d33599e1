// SPDX-License-Identifier: Apache-2.0
// hc_head: for chosen rows, pre = sigmoid(fn . streams), the sum of streams weighted by pre, and
// its RMSNorm. Without fn: the mean of the streams, quantised or not.
//
// Contract: kernels/op/hyper_connection.h; hidden a multiple of 128.
//
// Roofline: fn (64 D bytes, 0.26 MB at D = 4096) once a call and 8 D + 2 D bytes a row. Bound by
// latency. Measurements: docs/kernels.md.
//
// Plan: that of hc_pre, with 4 outputs.
//
// Edge cases: without row_of, the first rows.
#include "kernels/op/hyper_connection.h"
#include "kernels/sm12x/arch/memory.cuh"
#include "kernels/sm12x/entries.h"
#include "kernels/sm12x/exp.cuh"
#include "kernels/sm12x/launch.h"
#include "kernels/sm12x/stream_mix.cuh"

namespace dsv4 {
namespace sm12x::hc_head {

using sm12x::DoubleSingle;
using sm12x::kStreamCount;

__global__ void __launch_bounds__(sm12x::kMixWarps * 32)
    hc_head_mix_kernel(const __grid_constant__ HcHeadParams p, float* chunk_sums) {
  sm12x::MixChunk<kStreamCount>(p.streams, p.row_of, p.rows, p.hidden, p.fn, chunk_sums);
}

__global__ void __launch_bounds__(sm12x::kNormThreads)
    hc_head_kernel(const __grid_constant__ HcHeadParams p, const float* chunk_sums) {
  constexpr int kThreads = sm12x::kNormThreads;
  auto* const shared = sm12x::DynamicShared<std::byte>();
  __shared__ DoubleSingle sums[sm12x::MixSums(kStreamCount)];
  __shared__ float scratch[kThreads / 32];
  __shared__ float pre[kStreamCount];
  const int64_t row = blockIdx.x, dim = p.hidden, width = kStreamCount * dim;
  auto* const streams = reinterpret_cast<uint16_t*>(shared);
  auto* const row_sums = reinterpret_cast<float*>(shared + width * kActBytes);
  sm12x::PrefetchLines(p.norm, dim * 2, kThreads);
  const float scale = p.scale[0], base = p.base[threadIdx.x % kStreamCount];
  sm12x::BeginAfterPredecessors();
  const int64_t source = p.row_of == nullptr ? row : p.row_of[row];
  sm12x::CopyAllAsync(streams, static_cast<const uint16_t*>(p.streams) + source * width,
                      width * kActBytes, kThreads);
  const int64_t row_bytes = sm12x::MixRowBytes(width, kStreamCount);
  sm12x::CopyAllAsync(row_sums, reinterpret_cast<const std::byte*>(chunk_sums) + row * row_bytes,
                      row_bytes, kThreads);
  sm12x::CommitCopies();
  sm12x::WaitForCopies<0>();
  __syncthreads();
  sm12x::SumChunks<kStreamCount, kThreads>(row_sums, static_cast<int>(width / sm12x::kMixChunk),
                                           sums);
  __syncthreads();
  if (threadIdx.x < kStreamCount) {
    const int i = threadIdx.x;
    const float m = sm12x::MixingNumber(sums[i], sums[kStreamCount], width, p.norm_eps);
    DoubleSingle gate = sm12x::Sigmoid(sm12x::Logit(m, scale, base));
    gate.Add(p.hc_eps);
    pre[i] = gate.Rounded();
  }
  __syncthreads();
  const float squares = sm12x::SumStreams(streams, pre, dim, p.norm);
  if (p.mixed != nullptr) {
    for (int64_t column = threadIdx.x * 8; column < dim; column += kThreads * 8) {
      *reinterpret_cast<uint4*>(static_cast<uint16_t*>(p.mixed) + row * dim + column) =
          *reinterpret_cast<const uint4*>(streams + column);
    }
  }
  sm12x::NormalizeRow(streams, squares, dim, streams + dim, p.norm_eps,
                      static_cast<uint16_t*>(p.normed) + row * dim, nullptr, scratch);
}

// Block (row); a thread has eight columns of each stripe of 8 * kNormThreads.
__global__ void __launch_bounds__(sm12x::kNormThreads)
    hc_mean_kernel(const __grid_constant__ HcHeadParams p) {
  sm12x::BeginAfterPredecessors();
  const int64_t row = blockIdx.x, dim = p.hidden;
  const int64_t source = p.row_of == nullptr ? row : p.row_of[row];
  const uint16_t* const x = static_cast<const uint16_t*>(p.streams) + source * kStreamCount * dim;
  const int64_t row_bytes =
      p.quantise ? sm12x::QuantizedRowBytes(p.quantized_width) : p.quantized_width * kActBytes;
  uint8_t* const to = static_cast<uint8_t*>(p.quantized) + row * row_bytes;
  const int64_t warp_column = threadIdx.x / 32 * 256, lane_column = threadIdx.x % 32 * 8;
  for (int64_t begin = warp_column; begin < dim; begin += sm12x::kNormThreads * 8) {
    const int64_t column = begin + lane_column;
    const bool active = column < dim;
    float mean[8] = {};
    uint32_t packed[4] = {};
    if (active) {
      float v[kStreamCount][8];
#pragma unroll
      for (int h = 0; h < kStreamCount; ++h) sm12x::LoadBf16x8(x + h * dim + column, v[h]);
      constexpr float kQuarters[kStreamCount] = {0.25f, 0.25f, 0.25f, 0.25f};
#pragma unroll
      for (int i = 0; i < 8; i += 2) {
        float pair[kStreamCount][2];
#pragma unroll
        for (int h = 0; h < kStreamCount; ++h) pair[h][0] = v[h][i], pair[h][1] = v[h][i + 1];
        const uint32_t sums = packed[i / 2] = sm12x::WeightedSums(kQuarters, pair);
        mean[i] = sm12x::Bf16Low(sums);
        mean[i + 1] = sm12x::Bf16High(sums);
      }
    }
    if (p.quantise) {
      sm12x::StoreQuantized(mean, active, p.quantized_column + column, p.quantized_width, to);
    } else if (active) {
      *reinterpret_cast<uint4*>(to + (p.quantized_column + column) * kActBytes) =
          make_uint4(packed[0], packed[1], packed[2], packed[3]);
    }
  }
}

absl::Status SupportsHcHead(const HcHeadParams& p) {
  if (p.hidden % 128 != 0) return Unsupported("hidden ", p.hidden, " is not a multiple of 128");
  if (p.hidden > sm12x::kMostHidden) {
    return Unsupported("hidden ", p.hidden, " is above ", sm12x::kMostHidden);
  }
  return absl::OkStatus();
}

int64_t HcHeadWorkspace(const HcHeadParams& p, int) {
  return p.rows * sm12x::MixRowBytes(kStreamCount * p.hidden, kStreamCount);
}

void LaunchHcHead(const LaunchContext& context, const HcHeadParams& params) {
  if (params.fn == nullptr) {
    sm12x::LaunchOverlapped(CudaStreamOf(context), dim3(static_cast<unsigned>(params.rows)),
                            sm12x::kNormThreads, 0, hc_mean_kernel, params);
    return;
  }
  auto* const chunk_sums = reinterpret_cast<float*>(context.workspace);
  const cudaStream_t stream = CudaStreamOf(context);
  sm12x::LaunchOverlapped(stream, sm12x::MixGrid(context, params.hidden, params.rows),
                          sm12x::kMixWarps * 32, 0, hc_head_mix_kernel, params, chunk_sums);
  sm12x::LaunchOverlapped(stream, dim3(static_cast<unsigned>(params.rows)), sm12x::kNormThreads,
                          sm12x::RowSharedBytes(params.hidden, kStreamCount), hc_head_kernel,
                          params, chunk_sums);
}

}  // namespace sm12x::hc_head
using namespace sm12x::hc_head;  // NOLINT: of this file alone

constinit const KernelEntry kSm12xHcHead =
    MakeSm12xEntry<HcHeadParams, &LaunchHcHead, &SupportsHcHead, &HcHeadWorkspace>("sm12x.hc_head",
                                                                                   6);

}  // namespace dsv4
