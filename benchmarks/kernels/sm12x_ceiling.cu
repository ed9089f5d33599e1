// SPDX-License-Identifier: Apache-2.0
// The ceilings of the kernels' MMAs: loops of MMAs that load nothing. fp8 is a linear's K slice of
// four steps. Each MMA of the portable implementation has two or three other instructions, a
// block-scaled one has four: fewer than the cycles that the MMA takes.
#include "benchmarks/kernels/sm12x_bench.h"
#include "kernels/sm12x/arch/mma.cuh"
#include "kernels/sm12x/overlapped_launch.cuh"

namespace dsv4 {
namespace ceiling {

using namespace sm12x;  // NOLINT: the device code of this file

// A block on each multiprocessor, four warps on each of its tensor cores, each with work that does
// not wait for its other work. Each operand has registers of its own: bf16 MMAs that name one
// register several times reach 512 instead of 619 TFLOP/s on an H100.
constexpr int kThreads = 512, kRounds = 16384;
constexpr int kChains = 4, kTiles = 2, kColumns = 4;
constexpr int64_t kFp8Flops = kChains * 2 * 16 * 8 * 128,
                  kBf16Flops = kTiles * kColumns * 2 * 16 * 8 * 16;

// `none` is 0, as the compiler cannot know: each round's products differ from the last one's.
__global__ void __launch_bounds__(kThreads, 1)
    fp8_mma_kernel(uint32_t word, uint32_t none, float* out) {
  uint4 steps[4];
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    steps[i] = make_uint4(word ^ 4 * i, word ^ (4 * i + 1), word ^ (4 * i + 2), word ^ (4 * i + 3));
  }
  const Fp8Operand w(steps, 120);
  ReadyActs acts[kChains];
  float sums[kChains][4];
#pragma unroll
  for (int i = 0; i < kChains; ++i) {
    uint32_t codes[8];
#pragma unroll
    for (uint32_t j = 0; j < 8; ++j) codes[j] = word ^ (8 * i + j) << 8;
    acts[i] = Ready(codes);
  }
#pragma unroll 1
  for (int round = 0; round < kRounds; ++round) {
#pragma unroll
    for (int i = 0; i < kChains; ++i) {
      SliceProduct<true>(w, acts[i], 120, sums[i]);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        acts[i].words[j * kReadyWords] ^= __float_as_uint(sums[i][j]) & none;
      }
    }
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kChains; ++i) sum += sums[i][0];
  out[blockIdx.x * kThreads + threadIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads, 1)
    bf16_mma_kernel(uint32_t word, uint32_t, float* out) {
  uint32_t tiles[kTiles][4], columns[kColumns][2];
#pragma unroll
  for (uint32_t i = 0; i < kTiles * 4; ++i) tiles[i / 4][i % 4] = word ^ i;
#pragma unroll
  for (uint32_t i = 0; i < kColumns * 2; ++i) columns[i / 2][i % 2] = word ^ (16 + i);
  float sums[kColumns][kTiles][4] = {};
#pragma unroll 1
  for (int round = 0; round < kRounds; ++round) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        const uint32_t(&a)[4] = tiles[m];
        MmaBf16(sums[c][m], a[0], a[1], a[2], a[3], columns[c][0], columns[c][1]);
      }
    }
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kColumns * kTiles; ++i) sum += sums[i / kTiles][i % kTiles][0];
  out[blockIdx.x * kThreads + threadIdx.x] = sum;
}

// `flops` of a warp in a round.
double FlopsASecond(void (*kernel)(uint32_t, uint32_t, float*), uint32_t word, int64_t flops) {
  int blocks = 0;
  Check(cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, 0), "device");
  auto* out = Filled<float>(int64_t{blocks} * kThreads * 4, 0);
  const double seconds = SecondsOf(nullptr, 5, [&] {
    LaunchInOrder(nullptr, dim3(static_cast<unsigned>(blocks)), kThreads, 0, kernel, word, 0, out);
    Check(cudaGetLastError(), "MMAs");
  })[0];
  cudaFree(out);
  return static_cast<double>(flops * blocks * (kThreads / 32) * kRounds) / seconds;
}

}  // namespace ceiling

MmaCeilings MeasureMmaCeilings() {
  return {.fp8 = ceiling::FlopsASecond(ceiling::fp8_mma_kernel, 0x31313131, ceiling::kFp8Flops),
          .bf16 = ceiling::FlopsASecond(ceiling::bf16_mma_kernel, 0x3f803f80, ceiling::kBf16Flops)};
}

}  // namespace dsv4
