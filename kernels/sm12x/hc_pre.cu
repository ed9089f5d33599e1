// SPDX-License-Identifier: Apache-2.0
// hc_pre: the mixing numbers m = fn . streams; pre, post and comb from m by sigmoid and Sinkhorn;
// x = sum_h pre[h] streams[h]; RMSNorm of x, also quantised.
//
// Contract: kernels/op/hyper_connection.h; hidden a multiple of 128.
//
// Roofline: fn (384 D bytes, 1.57 MB at D = 4096) once a call and 8 D + 3 D bytes a row. Bound by
// latency at one row, by bandwidth at many. Measurements: docs/kernels.md.
//
// Plan:
// - A block of hc_pre_mix_kernel has 64 columns of all streams and some rows. It loads its part of
//   fn into registers before the streams are ready.
// - A block of hc_pre_kernel has one row and adds up its sums. Then eight warps normalise x while
//   one computes the 39 dependent steps of Sinkhorn.
// - Many rows: a warp of hc_pre_mix_many_kernel computes all parts of 16 rows instead.
// - More rows than resident blocks: a block of hc_pre_rows_kernel takes one row after the other.
// - Few rows: hc_pre_mix_kernel computes the update, since it has whole columns. Many rows: hc_post
//   computes it.
// - No f64: SM12x does one f64 operation for 64 of f32.
//
// Accuracy: post and comb are the nearest floats, except about one in 10^5, for any logits. All
// steps of Sinkhorn need double-single factors: later steps do not undo earlier rounding.
//
// Shared memory: 8 D bytes of streams, 1.6 D of sums and, of many rows, 2 D of the norm.
//
// Edge cases: padding rows are computed like others.
#include "kernels/op/hyper_connection.h"

#include <algorithm>

#include "kernels/sm12x/arch/memory.cuh"
#include "kernels/sm12x/entries.h"
#include "kernels/sm12x/exp.cuh"
#include "kernels/sm12x/launch.h"
#include "kernels/sm12x/step_program.h"
#include "kernels/sm12x/stream_mix.cuh"

namespace dsv4 {
namespace sm12x::hc_pre {

using sm12x::DoubleSingle;
using sm12x::kStreamCount;

// For more rows, a separate hc_post is faster: the blocks, which hold fn, would take several
// passes.
constexpr int kMostRowsUpdated = sm12x::kMixRows;
// Least rows for hc_pre_mix_many_kernel: behind hc_post it is slower with fewer.
constexpr int kManyRows = 48;
constexpr int kRowBlocks = 4;  // of hc_pre_rows_kernel, of a multiprocessor

template <bool kUpdates>
__global__ void __launch_bounds__(sm12x::kMixWarps * 32)
    hc_pre_mix_kernel(const __grid_constant__ HcPreParams p, float* chunk_sums) {
  sm12x::MixChunk<kMixes, kUpdates>(p.streams, nullptr, p.rows, p.hidden, p.fn, chunk_sums,
                                    UpdateOf(p));
}

__global__ void __launch_bounds__(sm12x::kMixWarps * 32, 1)
    hc_pre_mix_many_kernel(const __grid_constant__ HcPreParams p, float* chunk_sums) {
  sm12x::MixManyRows<kMixes>(p.streams, p.rows, p.hidden, p.fn, chunk_sums);
}

// Sets y = sum_i k[i] x_(l ^ i) + eps y, i < 4, in lane l, where x_j is the x of lane j. Returns
// 1 / y. Products with x.lo are added last, because x.lo is computed last.
__device__ __forceinline__ DoubleSingle InverseSum(const DoubleSingle (&k)[kStreamCount],
                                                   DoubleSingle x, float eps, DoubleSingle* y) {
  DoubleSingle of[kStreamCount] = {x};
#pragma unroll
  for (int i = 1; i < kStreamCount; ++i) of[i].hi = __shfl_xor_sync(0xffffffffu, x.hi, i);
#pragma unroll
  for (int i = 1; i < kStreamCount; ++i) of[i].lo = __shfl_xor_sync(0xffffffffu, x.lo, i);
  DoubleSingle sum = sm12x::ExactProduct(eps, y->hi);
  sum.lo = __fmaf_rn(eps, y->lo, sum.lo);
  float low = 0;
#pragma unroll
  for (int i = 0; i < kStreamCount; ++i) {
    sum.AddProduct(k[i].hi, of[i].hi);
    sum.lo = __fmaf_rn(k[i].lo, of[i].hi, sum.lo);
    low = __fmaf_rn(k[i].hi, of[i].lo, low);
  }
  sum.lo += low;
  *y = sum;
  return sm12x::Reciprocal(sum);
}

// Permutes x: x[i] becomes x[i ^ own], own < 4. Register arrays need constant indices.
__device__ __forceinline__ void XorPermute(int own, DoubleSingle (&x)[kStreamCount]) {
#pragma unroll
  for (int bit = 1; bit < kStreamCount; bit *= 2) {
#pragma unroll
    for (int i = 0; i < kStreamCount; ++i) {
      if ((i & bit) != 0 || (own & bit) == 0) continue;
      const DoubleSingle other = x[i];
      x[i] = x[i ^ bit];
      x[i ^ bit] = other;
    }
  }
}

// e^(logit - the largest logit of its row), by a warp whose lane l has element l % 16 of comb.
__device__ __forceinline__ DoubleSingle CombPower(DoubleSingle logit) {
  float top = logit.hi;
#pragma unroll
  for (int i = 1; i < kStreamCount; i *= 2) {
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, i));
  }
  logit.Add(-top);
  return sm12x::Exp(logit.Normalized());
}

// Ends the softmax of comb's rows and computes Sinkhorn, by four neighbouring lanes. Lane `own` of
// them passes the powers of row `own` of comb and gets that row.
//
// An element of comb is k[h][j] u[h] v[j] throughout: the softmax gives k, and steps change u and v
// alone. A row step divides x = k u v by (sum_j x + eps). With y = 1 / u, that sets y to
// sum_j k v + eps y. Column steps do the same with v. Lane l has u[l % 4] and v[l % 4].
__device__ __forceinline__ void Comb(const HcPreParams& p, int own,
                                     const DoubleSingle (&power)[kStreamCount],
                                     float (&comb)[kStreamCount]) {
  // k of row `own` and of column `own`; [i] is column or row own ^ i.
  DoubleSingle of_row[kStreamCount], of_column[kStreamCount];
#pragma unroll
  for (int j = 0; j < kStreamCount; ++j) {
    DoubleSingle sum = power[j];
#pragma unroll
    for (int i = 1; i < kStreamCount; ++i) sum.Add(power[j ^ i]);
    DoubleSingle weight = Product(power[j], sm12x::Reciprocal(sum));
    weight.Add(p.hc_eps);
    of_row[j] = weight.Normalized();
  }
  XorPermute(own, of_row);
#pragma unroll
  for (int i = 0; i < kStreamCount; ++i) of_column[i] = sm12x::OfNeighbour(of_row[i], i);
  DoubleSingle rows{1, 0}, columns{1, 0};  // 1 / u, 1 / v
  DoubleSingle u = rows, v = InverseSum(of_column, u, p.hc_eps, &columns);
  for (int i = 1; i < p.sinkhorn_iters; ++i) {
    u = InverseSum(of_row, v, p.hc_eps, &rows);
    v = InverseSum(of_column, u, p.hc_eps, &columns);
  }
#pragma unroll
  for (int i = 0; i < kStreamCount; ++i) {
    of_row[i] = Product(Product(of_row[i], u), sm12x::OfNeighbour(v, i));
  }
  XorPermute(own, of_row);
#pragma unroll
  for (int j = 0; j < kStreamCount; ++j) comb[j] = of_row[j].Rounded();
}

constexpr int kCombs = kStreamCount * kStreamCount;
constexpr int kThreads = sm12x::kNormThreads + 32;  // one more warp computes comb

// Block (row). With kUpdates, hc_pre_mix_kernel has computed the update, and p is AfterUpdate.
template <bool kUpdates>
__global__ void __launch_bounds__(kThreads)
    hc_pre_kernel(const __grid_constant__ HcPreParams p, const float* chunk_sums) {
  sm12x::LetSuccessorStart();
  auto* const shared = sm12x::DynamicShared<std::byte>();
  __shared__ DoubleSingle sums[sm12x::MixSums(kMixes)];
  __shared__ float scratch[sm12x::kNormThreads / 32];
  __shared__ float pre[kStreamCount];
  // The last rows first: of many, the first kernel has left those in L2.
  const int64_t row = gridDim.x - 1 - blockIdx.x, dim = p.hidden, width = kStreamCount * dim;
  auto* const streams = reinterpret_cast<uint16_t*>(shared);
  auto* const row_sums = reinterpret_cast<float*>(shared + width * kActBytes);
  const auto copy_streams = [&] {
    if (threadIdx.x >= static_cast<unsigned>(sm12x::kNormThreads)) return;
    sm12x::CopyAllAsync(streams, static_cast<const uint16_t*>(p.streams) + row * width,
                        width * kActBytes, sm12x::kNormThreads);
  };
  // Without an update, the streams are older than the predecessor's output, so need no wait.
  if (!kUpdates) copy_streams();
  sm12x::PrefetchLines(p.norm, dim * 2, kThreads);
  // Each lane has a mixing number: those of pre and post in the first warp, those of comb in the
  // last. The shuffle shows the compiler that `combs` is the same for a whole warp.
  const bool combs = __shfl_sync(0xffffffffu, threadIdx.x, 0) >= unsigned{sm12x::kNormThreads};
  constexpr int kGates = 2 * kStreamCount;
  const int lane = threadIdx.x % 32;
  const int mix = combs ? kGates + lane % kCombs : lane % kGates;
  const float scale = p.scale[min(mix / kStreamCount, 2)], base = p.base[mix];
  sm12x::WaitForPredecessors();
  const int64_t row_bytes = sm12x::MixRowBytes(width, kMixes);
  sm12x::CopyAllAsync(row_sums, reinterpret_cast<const std::byte*>(chunk_sums) + row * row_bytes,
                      row_bytes, kThreads);
  sm12x::CommitCopies();
  if (kUpdates) copy_streams();  // in flight until x is computed
  sm12x::CommitCopies();
  sm12x::WaitForCopies<kUpdates ? 1 : 0>();
  __syncthreads();
  sm12x::SumChunks<kMixes, kThreads>(row_sums, static_cast<int>(width / sm12x::kMixChunk), sums);
  __syncthreads();
  const auto logit = [&] {
    const float m = sm12x::MixingNumber(sums[mix], sums[kMixes], width, p.norm_eps);
    return sm12x::Logit(m, scale, base);
  };
  if (combs) {
    const DoubleSingle power = CombPower(logit());
    DoubleSingle of_row[kStreamCount];
    const int own = lane % kStreamCount;
#pragma unroll
    for (int j = 0; j < kStreamCount; ++j) {
      of_row[j] = sm12x::OfLane(power, own * kStreamCount + j);
    }
    float comb[kStreamCount];
    Comb(p, own, of_row, comb);
    if (lane < kStreamCount) {
      *reinterpret_cast<float4*>(p.comb + row * kCombs + own * kStreamCount) =
          make_float4(comb[0], comb[1], comb[2], comb[3]);
    }
    return;
  }
  if (threadIdx.x < kGates) {
    DoubleSingle gate = sm12x::Sigmoid(logit());
    if (mix < kStreamCount) {
      gate.Add(p.hc_eps);
      pre[mix] = gate.Rounded();
    } else {
      p.post[row * kStreamCount + mix - kStreamCount] = 2 * gate.Rounded();
    }
  }
  sm12x::WaitForCopies<0>();
  sm12x::SyncNormThreads();
  const float squares = sm12x::SumStreams(streams, pre, dim, p.norm);
  sm12x::NormalizeRow(streams, squares, dim, streams + dim, p.norm_eps,
                      static_cast<uint16_t*>(p.normed) + row * dim,
                      static_cast<uint8_t*>(p.quantized) + row * sm12x::QuantizedRowBytes(dim),
                      scratch);
}

constexpr int kCombRows = 8;  // whose comb a warp computes at once

// As hc_pre_kernel without an update, for many rows: a block takes one row after the other, keeps
// the norm's weights, and computes comb of kCombRows rows at once.
__global__ void __launch_bounds__(kThreads, kRowBlocks)
    hc_pre_rows_kernel(const __grid_constant__ HcPreParams p, const float* chunk_sums) {
  sm12x::LetSuccessorStart();
  auto* const shared = sm12x::DynamicShared<std::byte>();
  __shared__ DoubleSingle sums[sm12x::MixSums(kMixes)];
  __shared__ DoubleSingle powers[kCombRows][kCombs];
  __shared__ float scratch[sm12x::kNormThreads / 32];
  __shared__ float pre[kStreamCount];
  const int64_t dim = p.hidden, width = kStreamCount * dim;
  const int64_t row_bytes = sm12x::MixRowBytes(width, kMixes);
  auto* const streams = reinterpret_cast<uint16_t*>(shared);
  auto* const norm = reinterpret_cast<uint16_t*>(shared + width * kActBytes + row_bytes);
  auto* const row_sums = reinterpret_cast<float*>(shared + width * kActBytes);
  const bool combs = __shfl_sync(0xffffffffu, threadIdx.x, 0) >= unsigned{sm12x::kNormThreads};
  const auto copy_sums = [&](int row) {
    if (row >= 0) {
      sm12x::CopyAllAsync(row_sums,
                          reinterpret_cast<const std::byte*>(chunk_sums) + row * row_bytes,
                          row_bytes, kThreads);
    }
    sm12x::CommitCopies();
  };
  // Each thread copies what it reads, so that it may copy the next row as soon as it has.
  const auto copy_streams = [&](int row) {
    if (!combs && row >= 0) {
      const auto* from = static_cast<const uint16_t*>(p.streams) + row * width;
      for (int64_t column = threadIdx.x * 8; column < dim; column += sm12x::kNormThreads * 8) {
#pragma unroll
        for (int h = 0; h < kStreamCount; ++h) {
          sm12x::CopyAsync16(streams + h * dim + column, from + h * dim + column);
        }
      }
    }
    sm12x::CommitCopies();
  };
  if (!combs) {
    for (int64_t column = threadIdx.x * 8; column < dim; column += sm12x::kNormThreads * 8) {
      sm12x::CopyAsync16(norm + column, p.norm + column);
    }
  }
  constexpr int kGates = 2 * kStreamCount;
  const int lane = threadIdx.x % 32;
  const int mix = combs ? kGates + lane % kCombs : lane % kGates;
  const float scale = p.scale[min(mix / kStreamCount, 2)], base = p.base[mix];
  // The last rows first: of many, the first kernel has left those in L2.
  int row = p.rows - 1 - static_cast<int>(blockIdx.x);
  const int step = static_cast<int>(gridDim.x);
  int count = 0;  // of rows whose powers wait
  sm12x::WaitForPredecessors();
  copy_sums(row);
  copy_streams(row);
#pragma unroll 1
  for (; row >= 0; row -= step) {
    sm12x::WaitForCopies<1>();
    __syncthreads();
    sm12x::SumChunks<kMixes, kThreads>(row_sums, static_cast<int>(width / sm12x::kMixChunk), sums);
    __syncthreads();
    copy_sums(row - step);
    const auto logit = [&] {
      const float m = sm12x::MixingNumber(sums[mix], sums[kMixes], width, p.norm_eps);
      return sm12x::Logit(m, scale, base);
    };
    if (combs) {
      const DoubleSingle power = CombPower(logit());
      if (lane < kCombs) powers[count][lane] = power;
      if (++count == kCombRows || row < step) {
        __syncwarp();
        const int own = lane % kStreamCount, of = min(lane / kStreamCount, count - 1);
        DoubleSingle of_row[kStreamCount];
#pragma unroll
        for (int j = 0; j < kStreamCount; ++j) of_row[j] = powers[of][own * kStreamCount + j];
        float comb[kStreamCount];
        Comb(p, own, of_row, comb);
        if (lane / kStreamCount < count) {
          const int64_t to = row + int64_t{step} * (count - 1 - of);
          *reinterpret_cast<float4*>(p.comb + to * kCombs + own * kStreamCount) =
              make_float4(comb[0], comb[1], comb[2], comb[3]);
        }
        count = 0;
        __syncwarp();
      }
      sm12x::CommitCopies();
      continue;
    }
    if (threadIdx.x < kGates) {
      DoubleSingle gate = sm12x::Sigmoid(logit());
      if (mix < kStreamCount) {
        gate.Add(p.hc_eps);
        pre[mix] = gate.Rounded();
      } else {
        p.post[int64_t{row} * kStreamCount + mix - kStreamCount] = 2 * gate.Rounded();
      }
    }
    sm12x::WaitForCopies<1>();
    sm12x::SyncNormThreads();
    const float squares = sm12x::SumStreams(streams, pre, dim, nullptr);
    sm12x::NormalizeRow(
        streams, squares, dim, norm, p.norm_eps, static_cast<uint16_t*>(p.normed) + row * dim,
        static_cast<uint8_t*>(p.quantized) + row * sm12x::QuantizedRowBytes(dim), scratch);
    copy_streams(row - step);
  }
}

absl::Status SupportsHcPre(const HcPreParams& p) {
  if (p.hidden % 128 != 0) return Unsupported("hidden ", p.hidden, " is not a multiple of 128");
  if (p.hidden > sm12x::kMostHidden) {
    return Unsupported("hidden ", p.hidden, " is above ", sm12x::kMostHidden);
  }
  return absl::OkStatus();
}

// The workspace holds the sums of chunks.
int64_t HcPreWorkspace(const HcPreParams& p, int) {
  return p.rows * sm12x::MixRowBytes(kStreamCount * p.hidden, kMixes);
}

template <bool kUpdates>
void LaunchRow(const LaunchContext& context, const HcPreParams& params) {
  sm12x::LaunchOverlapped(CudaStreamOf(context), dim3(static_cast<unsigned>(params.rows)), kThreads,
                          sm12x::RowSharedBytes(params.hidden, kMixes), hc_pre_kernel<kUpdates>,
                          kUpdates ? AfterUpdate(params) : params,
                          reinterpret_cast<const float*>(context.workspace));
}

template <bool kUpdates>
void LaunchKernels(const LaunchContext& context, const HcPreParams& params) {
  auto* const chunk_sums = reinterpret_cast<float*>(context.workspace);
  const cudaStream_t stream = CudaStreamOf(context);
  const int64_t hidden = params.hidden;
  if (!kUpdates && params.rows >= kManyRows) {
    constexpr int kRowsOfBlock = sm12x::kMixRows * sm12x::kMixWarps;
    sm12x::LaunchOverlapped(stream, sm12x::MixGrid(context, hidden, params.rows, kRowsOfBlock, 1),
                            sm12x::kMixWarps * 32, 0, hc_pre_mix_many_kernel, params, chunk_sums);
  } else {
    sm12x::LaunchOverlapped(stream, sm12x::MixGrid(context, hidden, params.rows),
                            sm12x::kMixWarps * 32, 0, hc_pre_mix_kernel<kUpdates>, params,
                            chunk_sums);
  }
  const int row_blocks = kRowBlocks * context.multiprocessors;
  if (!kUpdates && params.rows > row_blocks) {
    sm12x::LaunchOverlapped(stream, dim3(static_cast<unsigned>(row_blocks)), kThreads,
                            sm12x::RowSharedBytes(hidden, kMixes) + hidden * kActBytes,
                            hc_pre_rows_kernel, params, chunk_sums);
    return;
  }
  LaunchRow<kUpdates>(context, params);
}

void LaunchHcPre(const LaunchContext& context, const HcPreParams& params) {
  if (params.update.y == nullptr) return LaunchKernels<false>(context, params);
  if (params.rows <= kMostRowsUpdated) return LaunchKernels<true>(context, params);
  const HcPostParams update = UpdateOf(params);
  kSm12xHcPost.launch(context, &update);
  LaunchKernels<false>(context, AfterUpdate(params));
}

}  // namespace sm12x::hc_pre

void sm12x::LaunchHcPreRow(const LaunchContext& context, const HcPreParams& p) {
  hc_pre::LaunchRow<true>(context, p);
}

using namespace sm12x::hc_pre;  // NOLINT: of this file alone

constinit const KernelEntry kSm12xHcPre =
    MakeSm12xEntry<HcPreParams, &LaunchHcPre, &SupportsHcPre, &HcPreWorkspace>("sm12x.hc_pre", 6);

}  // namespace dsv4
