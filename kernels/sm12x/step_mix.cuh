// SPDX-License-Identifier: Apache-2.0
// Phase of a step program: the first half of hc_pre of one row. A block has the chunk of its index
// (stream_mix.cuh): it updates these columns of the streams and adds up the chunk, as
// hc_pre_mix_kernel does.
#pragma once

#include "kernels/sm12x/bf16.cuh"
#include "kernels/sm12x/step_program.h"
#include "kernels/sm12x/step_words.cuh"
#include "kernels/sm12x/stream_mix.cuh"

namespace dsv4::sm12x {

struct MixShared {
  alignas(16) DoubleSingle parts[kMixWarps][MixSums(kMixes)];
  alignas(16) uint32_t made[kStreamCount][kMadePairs];
};

__device__ __forceinline__ bool OwnsChunk(const MixPhase& phase) {
  return static_cast<int64_t>(blockIdx.x) * kMixColumns < phase.p.hidden;
}

// Prefetches the block's part of fn.
__device__ __forceinline__ void PrefetchMix(const MixPhase& phase) {
  constexpr int kLines = kMixes * kStreamCount * 2, kLineFloats = 32;
  static_assert(kMixColumns == 2 * kLineFloats && kLines <= kProgramThreads);
  if (phase.chunk_sums == nullptr || !OwnsChunk(phase) || threadIdx.x >= kLines) return;
  const int64_t row = threadIdx.x / 2;  // of [24, 4, D]
  PrefetchLine(phase.p.fn + row * phase.p.hidden + blockIdx.x * kMixColumns +
               threadIdx.x % 2 * kLineFloats);
}

// `shared`: memory that no thread uses any more behind the next barrier.
__device__ __forceinline__ void RunMix(const MixPhase& phase, const LaunchWords& words,
                                       std::byte* shared) {
  constexpr int kTiles = kMixTiles<kMixes>, kStride = MixSums(kMixes);
  constexpr int kTerms = 1 + kStreamCount;
  if (!OwnsChunk(phase)) return;
  const HcPreParams& p = phase.p;
  MixShared& s = *reinterpret_cast<MixShared*>(shared);
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32, g = lane / 4,
            t = lane % 4, me = blockIdx.x;
  const int64_t dim = p.hidden, width = kStreamCount * dim;
  const bool mixes = phase.chunk_sums != nullptr;
  float4 stored[kTiles][2];
  if (mixes && warp < kMixWarps) {
    LoadWeights<kMixes>(p.fn, width, PartColumn(warp, me, dim), stored);
  }
  // A lane has columns 2 lane and 2 lane + 1 of the chunk, of stream `warp`.
  const int64_t pair = me * (kMixColumns / 2) + lane;
  float weight[kTerms];
  uint32_t pairs[kTerms];
  if (warp < kStreamCount) {
    weight[0] = p.update.post[warp];
#pragma unroll
    for (int h = 0; h < kStreamCount; ++h) {
      weight[1 + h] = p.update.comb[h * kStreamCount + warp];
      pairs[1 + h] = reinterpret_cast<const uint32_t*>(static_cast<const uint16_t*>(p.streams) +
                                                       h * dim)[pair];
    }
  }
  __syncthreads();
  if (warp < kStreamCount) {
    pairs[0] = AwaitWord(words.At(phase.y_words) + pair);
    float x[kTerms][2];
#pragma unroll
    for (int h = 0; h < kTerms; ++h) {
      x[h][0] = Bf16Low(pairs[h]);
      x[h][1] = Bf16High(pairs[h]);
    }
    const uint32_t sum = WeightedSums(weight, x);
    s.made[warp][lane] = sum;
    // It may be p.streams, which all warps have read.
    reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(p.update.out) + warp * dim)[pair] = sum;
  }
  __syncthreads();
  if (!mixes) return;
  if (warp < kMixWarps) {
    uint4 of_row[2] = {make_uint4(0, 0, 0, 0), make_uint4(0, 0, 0, 0)};
    if (g == 0) {
      of_row[0] = *reinterpret_cast<const uint4*>(
          &s.made[warp % kStreamCount][(warp / kStreamCount * kMixPart + t * 8) / 2]);
    }
    PartOfStreams x;
    x.Set(of_row);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      PartOfWeights weights;
      SplitWeights(stored[tile], weights);
      float major[4], rest[4];
      MultiplyPart(x, weights, major, rest);
      if (g == 0) {
        *reinterpret_cast<float4*>(&s.parts[warp][tile * 8 + 2 * t]) =
            make_float4(major[0], rest[0], major[1], rest[1]);
      }
    }
    const float squares = x.Squares(0);
    if (lane == 0) s.parts[warp][kMixes] = {squares, 0};
  }
  __syncthreads();
  if (thread <= kMixes) {
    DoubleSingle sum;
#pragma unroll
    for (int w = 0; w < kMixWarps; w += 2) {
      const DoubleSingle a = s.parts[w][thread], b = s.parts[w + 1][thread];
      sum.Add(DoubleSingle{__fadd_rn(a.hi, b.hi), __fadd_rn(a.lo, b.lo)});
    }
    phase.chunk_sums[me * kStride + thread] = sum.Rounded();
  }
}

}  // namespace dsv4::sm12x
