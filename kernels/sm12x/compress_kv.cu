// SPDX-License-Identifier: Apache-2.0
// compress_kv: per element, softmax(z + ape) . k over the rows of a compressed block (at ratio 4,
// also over part A of the previous block), online; then RMSNorm, RoPE and quantiser; state writes.
//
// Contract: kernels/op/attention.h; rows packed, bf16 or fp8_per_tensor, index keys index_fp4.
//
// Roofline: 8 w bytes a row, 12 d (ratio 128) or 36 d (ratio 4) bytes a state. Bound by latency at
// one row, by bandwidth at many.
//
// Plan: one block for each row of the step, one thread for each element.
// - A block has work if a compressed block ends at its row, or a state is written after it.
// - It adds up all rows of that compressed block, and at ratio 4 of the previous one. Where these
//   began before the step, it starts from the state before the step.
// - A state that is written within a compressed block recomputes that block's rows, at most 127.
// - The first warp normalises, quantises and writes the compressed row.
//
// Edge cases: padding rows do nothing; the first compressed block of a sequence has no previous
// one.
#include "kernels/op/attention.h"
#include "kernels/sm12x/entries.h"
#include "kernels/sm12x/launch.h"
#include "kernels/sm12x/overlapped_launch.cuh"
#include "kernels/sm12x/row_math.cuh"

namespace dsv4 {
namespace sm12x::compress_kv {

using namespace sm12x;  // NOLINT: the device code of this file

// The online softmax of one element: the maximum, the sum of weights and the weighted sum.
struct Pool {
  float largest = -INFINITY, weights = 0, weighted = 0;

  __device__ __forceinline__ void Load(const float* triple, int dim) {
    largest = triple[0];
    weights = triple[dim];
    weighted = triple[2 * dim];
  }
  __device__ __forceinline__ void Add(float k, float score) {
    // One of the two factors is 1.
    const bool rises = score > largest;
    const float e = expf(rises ? __fsub_rn(largest, score) : __fsub_rn(score, largest));
    weights = rises ? __fmaf_rn(weights, e, 1.0f) : __fadd_rn(weights, e);
    weighted = rises ? __fmaf_rn(weighted, e, k) : __fmaf_rn(k, e, weighted);
    largest = rises ? score : largest;
  }

  // The pooled value.
  __device__ __forceinline__ float Average() const { return __fdiv_rn(weighted, weights); }
  // The pooled value of this pool's and `other`'s entries together.
  __device__ __forceinline__ float AverageWith(const Pool& other) const {
    // One of the two factors is 1.
    const bool mine = other.largest > largest;
    const float e =
        expf(mine ? __fsub_rn(largest, other.largest) : __fsub_rn(other.largest, largest));
    const Pool low = mine ? *this : other, high = mine ? other : *this;
    return __fdiv_rn(__fmaf_rn(low.weighted, e, high.weighted),
                     __fmaf_rn(low.weights, e, high.weights));
  }
};

__device__ __forceinline__ void StoreOrClear(bool present, const Pool& pool, float* triple,
                                             int dim) {
  triple[0] = present ? pool.largest : 0;
  triple[dim] = present ? pool.weights : 0;
  triple[2 * dim] = present ? pool.weighted : 0;
}

// One element of all rows of a sequence.
struct Column {
  const float *k, *z;  // of the sequence's first row
  const float* ape;
  int64_t width;
  int ratio;
  int64_t first_position;

  // Adds rows [begin, end), all of one compressed block. `offset`: the element's offset in k, z and
  // ape. At ratio 4, a row has part B behind part A.
  __device__ __forceinline__ void AddRows(int64_t begin, int64_t end, int offset,
                                          Pool* pool) const {
#pragma unroll 2
    for (int64_t i = begin; i < end; ++i) {
      const int64_t entry = (first_position + i) % ratio;
      const int64_t at = i * width + offset;
      pool->Add(k[at], __fadd_rn(z[at], ape[entry * width + offset]));
    }
  }
};

template <int kDim>
__global__ void __launch_bounds__(kDim)
    compress_kv_kernel(const __grid_constant__ CompressKvParams p,
                       const __grid_constant__ StepRows step) {
  __shared__ __align__(16) uint16_t pooled_row[kDim];
  BeginAfterPredecessors();
  const int64_t t = blockIdx.x;
  const int32_t index = step.sequence_of[t];
  if (index < 0) return;
  const SequenceRows& s = step.sequences[index];
  const int64_t i = t - s.first_row, first_position = s.first_position;
  const int64_t position = first_position + i;
  const bool ends = (position + 1) % p.ratio == 0;
  float* write_to = nullptr;
  for (int32_t n = s.state_write_count - 1; n >= 0; --n) {
    const int32_t row = s.state_writes[n].row;
    if (row == i + 1) {
      write_to = reinterpret_cast<float*>(p.states.Slot(s.state_writes[n].slot)) + threadIdx.x;
    }
    if (row <= i + 1) break;
  }
  if (!ends && write_to == nullptr) return;

  const bool overlapping = p.ratio == kCsaRatio;
  const int64_t width = overlapping ? 2 * kDim : kDim;
  const int64_t origin = s.first_row * width + threadIdx.x;
  const Column column{p.k + origin, p.z + origin, p.ape + threadIdx.x,
                      width,        p.ratio,      first_position};
  const float* in = reinterpret_cast<const float*>(p.states.Slot(s.state_slot)) + threadIdx.x;
  // The first row of the compressed block; below 0 if it began before the step.
  const int64_t begin = i - position % p.ratio;
  const int64_t first = begin < 0 ? 0 : begin;
  const int part_b_offset = overlapping ? kDim : 0;

  Pool part_b;
  if (begin < 0) part_b.Load(in + (overlapping ? 6 * kDim : 0), kDim);
  column.AddRows(first, i + 1, part_b_offset, &part_b);
  Pool previous, part_a;
  const bool has_previous = overlapping && position >= p.ratio;
  if (has_previous) {
    // Part A of the previous compressed block: from the state, the step's rows, or both.
    const int64_t previous_begin = begin - p.ratio;
    if (begin <= 0) {
      previous.Load(in, kDim);
    } else {
      if (previous_begin < 0) previous.Load(in + 3 * kDim, kDim);
      column.AddRows(previous_begin < 0 ? 0 : previous_begin, begin, 0, &previous);
    }
  }
  if (write_to != nullptr) {
    if (overlapping) {
      if (begin < 0) part_a.Load(in + 3 * kDim, kDim);
      column.AddRows(first, i + 1, 0, &part_a);
      const Pool last = {ends ? part_a.largest : previous.largest,
                         ends ? part_a.weights : previous.weights,
                         ends ? part_a.weighted : previous.weighted};
      StoreOrClear(ends || has_previous, last, write_to, kDim);
      StoreOrClear(!ends, part_a, write_to + 3 * kDim, kDim);
    }
    StoreOrClear(!ends, part_b, write_to + (overlapping ? 6 * kDim : 0), kDim);
  }
  if (!ends) return;

  const float pooled = has_previous ? part_b.AverageWith(previous) : part_b.Average();
  pooled_row[threadIdx.x] = static_cast<uint16_t>(Bf16x2(pooled, 0));
  __syncthreads();
  if (threadIdx.x >= 32) return;
  const int lane = static_cast<int>(threadIdx.x);
  const int64_t compressed_block = position / p.ratio,
                per_block = kCompressedKvBlockTokens / p.ratio;
  const int32_t block = s.compressed_kv_blocks[compressed_block / per_block];
  const int64_t slot = compressed_block % per_block;
  const float* rope = (overlapping ? step.rope.ratio4 : step.rope.ratio128) + t * kKvRopeElements;
  if constexpr (kDim == kKvRowElements) {
    float x[2][8];
    LoadBf16x8(pooled_row + lane * 8, x[0]);
    LoadBf16x8(pooled_row + 256 + lane * 8, x[1]);
    NormRopeStoreKvRow(x, p.norm, p.eps, rope, p.rows, block, slot, lane);
  } else {
    const auto load = [lane](const uint16_t* from, float(&out)[4]) {
      const uint2 v = *reinterpret_cast<const uint2*>(from + lane * 4);
      out[0] = Bf16Low(v.x), out[1] = Bf16High(v.x);
      out[2] = Bf16Low(v.y), out[3] = Bf16High(v.y);
    };
    float x[4], weight[4];
    load(pooled_row, x);
    load(p.norm, weight);
    const float inverse = InverseRms(WarpSum(SquaresOf(x, 0)), kIndexKeyElements, p.eps);
#pragma unroll
    for (int e = 0; e < 4; ++e) x[e] = RoundBf16(__fmul_rn(__fmul_rn(x[e], inverse), weight[e]));
    RotateTail(x, rope, lane);
    Hadamard(x, lane);
    StoreIndexKey(x, p.rows, block, slot, lane);
  }
}

void LaunchCompressKv(const LaunchContext& context, const CompressKvParams& params) {
  const dim3 rows(static_cast<unsigned>(params.step->rows));
  cudaStream_t stream = CudaStreamOf(context);
  if (params.index_keys) {
    LaunchOverlapped(stream, rows, kIndexKeyElements, 0, compress_kv_kernel<kIndexKeyElements>,
                     params, *params.step);
  } else {
    LaunchOverlapped(stream, rows, kKvRowElements, 0, compress_kv_kernel<kKvRowElements>, params,
                     *params.step);
  }
}

}  // namespace sm12x::compress_kv
using namespace sm12x::compress_kv;  // NOLINT: of this file alone

constinit const KernelEntry kSm12xCompressKv =
    MakeSm12xEntry<CompressKvParams, &LaunchCompressKv, &SupportsSm12xRows<CompressKvParams>>(
        "sm12x.compress_kv", 1);

}  // namespace dsv4
