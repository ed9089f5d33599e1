// SPDX-License-Identifier: Apache-2.0
// The arithmetic of sparse_attention on 16 heads (the M of m16n8k16) and a chunk of 32 rows, for
// its kernels for few and for many queries. The plan is in sparse_attention.cu.
#pragma once

#include "kernels/sm12x/arch/mma.cuh"
#include "kernels/sm12x/arch/threads.cuh"
#include "kernels/sm12x/attention_rows.cuh"

namespace dsv4::sm12x {

inline constexpr float kNoRows = -1e30f;  // the maximum of a chunk without rows
inline constexpr float kLog2E = 1.44269504f;

// 2^x of an integral x <= 0; 0 instead of subnormal numbers.
__device__ __forceinline__ float PowerOfTwo(float x) {
  return x < -126.0f ? 0.0f : __int_as_float((static_cast<int>(x) + 127) << 23);
}

// 2^x of x <= 0; 0 below 2^-40, so that the result times a Factor is a normal number, hence exact.
__device__ __forceinline__ float Power(float x) { return x < -40.0f ? 0.0f : exp2f(x); }

// 2^x of an integral x <= 0, by which sums are rescaled; 0 below 2^-60. Sums with such a factor are
// below the precision of the others.
__device__ __forceinline__ float Factor(float x) { return x < -60.0f ? 0.0f : PowerOfTwo(x); }

// The running maximum of the chunks so far: their sums are relative to 2^maximum.
struct Running {
  float maximum = kNoRows;

  // Includes the maximum of the next chunk. Returns the factors of the sums so far (x) and of the
  // chunk's sums (y).
  __device__ __forceinline__ float2 Raise(float chunk_maximum) {
    const float top = fmaxf(maximum, chunk_maximum);
    const float2 factors = make_float2(Factor(maximum - top), Factor(chunk_maximum - top));
    maximum = top;
    return factors;
  }
};

// Sums of two neighbouring elements.
struct SumPair {
  float of[2] = {};

  __device__ __forceinline__ void Scale(float factor) {
    of[0] = __fmul_rn(of[0], factor);
    of[1] = __fmul_rn(of[1], factor);
  }
  __device__ __forceinline__ void Add(const SumPair& x) {
    of[0] = __fadd_rn(of[0], x.of[0]);
    of[1] = __fadd_rn(of[1], x.of[1]);
  }
  // Adds x times a power of two.
  __device__ __forceinline__ void AddScaled(const SumPair& x, float factor) {
    of[0] = __fmaf_rn(x.of[0], factor, of[0]);
    of[1] = __fmaf_rn(x.of[1], factor, of[1]);
  }
};

// The factor of a head's sums: `unit` over (`weights`, the sum of P, plus the sink's weight). The
// sums and `weights` are relative to 2^maximum; `unit` is a power of two.
__device__ __forceinline__ float Inverse(float maximum, float weights, float sink, float unit) {
  const float x = __fmul_rn(sink, kLog2E), top = fmaxf(maximum, ceilf(x));
  const float factor = PowerOfTwo(maximum - top);
  return __fmul_rn(__fdiv_rn(factor, __fmaf_rn(weights, factor, exp2f(x - top))), unit);
}

// The rotation of elements 2 `pair` and 2 `pair` + 1 of a row, if they belong to its rotary part.
struct RopePair {
  bool rotated;
  float cosine = 1, sine = 0;
  __device__ __forceinline__ RopePair(const float* rope, int pair) {
    constexpr int kPlainPairs = (kKvRowElements - kKvRopeElements) / 2;
    rotated = pair >= kPlainPairs;
    if (!rotated) return;
    cosine = rope[pair - kPlainPairs];
    sine = rope[32 + pair - kPlainPairs];
  }
};

// A pair of a head's output, with the inverse rotation in the rotary part.
__device__ __forceinline__ uint32_t OutputPair(const SumPair& sum, float inverse,
                                               const RopePair& rope) {
  float a = RoundBf16(__fmul_rn(sum.of[0], inverse));
  float b = RoundBf16(__fmul_rn(sum.of[1], inverse));
  if (rope.rotated) Rotate(&a, &b, rope.cosine, -rope.sine);
  return Bf16x2(a, b);
}

__device__ __forceinline__ const float* RopeOf(const AttendArgs& args, int64_t t) {
  const RopeTables& rope = args.step.rope;
  return (args.p.ratio == 0 ? rope.window : rope.compressed) + t * kKvRopeElements;
}

// The places of a score's column and of a step's parts in a HeadPair, swizzled so that a warp's
// fragments use all banks.
__device__ __forceinline__ int ScoreColumn(int pair, int column) {
  return column ^ (pair & 3) << 3;
}
__device__ __forceinline__ int PartStep(int pair, int part, int step) {
  return (2 * part + step) ^ (pair & 1);
}

// d += a b in the RowNumbers of a row format.
template <RowFormat kFormat>
__device__ __forceinline__ void MmaRows(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                        uint32_t a3, uint32_t b0, uint32_t b1) {
  if constexpr (kFormat == RowFormat::kFp8PerTensor) {
    MmaF16(d, a0, a1, a2, a3, b0, b1);
  } else {
    MmaBf16(d, a0, a1, a2, a3, b0, b1);
  }
}

// A warp's queries as fragments: 16 heads by the K steps (16 elements) of the warp's quarter, which
// are every fourth step.
struct QueryFragments {
  static constexpr int kSteps = kKvRowElements / 16 / kQuarters;
  uint32_t of[kSteps][4];

  __device__ __forceinline__ QueryFragments(const QueryTile& queries, int warp, int lane) {
    const int head = lane % 16;
    const uint4* q_row = &queries[head][(2 * (warp % kQuarters) + lane / 16) ^ (head & 7)];
#pragma unroll
    for (int step = 0; step < kSteps; ++step) LoadMatrices(of[step], q_row + 8 * step);
  }
};

// The scores of 16 heads by 16 rows: two fragments.
using ScoreSums = float[2][4];

// Adds the scores of rows 16 (warp / 4) .. + 15 over quarter warp % 4 of the elements.
template <RowFormat kFormat>
__device__ __forceinline__ void ScoreRows(const QueryFragments& queries, const RowPlaces& rows,
                                          int warp, int lane, ScoreSums& sums) {
  const uint4* row = &rows[warp / kQuarters * 16 + lane / 16 * 8 + lane % 8]
                          [(2 * (warp % kQuarters) + lane / 8 % 2) ^ (lane % 8)];
#pragma unroll
  for (int step = 0; step < QueryFragments::kSteps; ++step) {
    uint32_t b[4];
    LoadMatrices(b, row + 8 * step);
    const uint32_t(&q)[4] = queries.of[step];
    MmaRows<kFormat>(sums[0], q[0], q[1], q[2], q[3], b[0], b[1]);
    MmaRows<kFormat>(sums[1], q[0], q[1], q[2], q[3], b[2], b[3]);
  }
}

template <class Pair>
__device__ __forceinline__ void StoreScores(const ScoreSums& sums, int warp, int lane,
                                            Pair (&pairs)[kSlices]) {
  const int quarter = warp % kQuarters, half = warp / kQuarters, pair = lane / 4;
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
    const int column = ScoreColumn(pair, 16 * half + 8 * tile + lane % 4 * 2);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      *reinterpret_cast<float2*>(&pairs[pair].scores[i][quarter][column]) =
          make_float2(sums[tile][2 * i], sums[tile][2 * i + 1]);
    }
  }
}

// A thread computes P of one head and two columns: the head within the tile, and the first column.
__device__ __forceinline__ int HeadOf(int warp, int lane) { return warp + lane / 16 * 8; }
__device__ __forceinline__ int ColumnOf(int lane) { return lane % 16 * 2; }

// The state of one chunk and a thread's head: the maximum, the sum of P relative to 2^maximum, and
// P of the thread's two columns.
struct ChunkWeights {
  float maximum, sum;
  float weight[2];
};

// Computes P from the scores, two columns a thread. All threads of a head get its maximum and sum.
template <class Pair>
__device__ __forceinline__ ChunkWeights MakeWeights(int warp, int lane, unsigned mask, float scale,
                                                    const Pair (&pairs)[kSlices]) {
  const int column = ColumnOf(lane);
  const float* scores = &pairs[warp].scores[lane / 16][0][ScoreColumn(warp, column)];
  float x[2] = {};
#pragma unroll
  for (int quarter = 0; quarter < kQuarters; ++quarter) {
    const float2 score = *reinterpret_cast<const float2*>(scores + quarter * kChunk);
    x[0] = __fadd_rn(x[0], score.x);
    x[1] = __fadd_rn(x[1], score.y);
  }
  ChunkWeights out;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const bool present = (mask >> (column + i) & 1) != 0;
    x[i] = present ? __fmul_rn(x[i], scale) : -INFINITY;
  }
  out.maximum = fmaxf(x[0], x[1]);
#pragma unroll
  for (int offset = 8; offset > 0; offset /= 2) {
    out.maximum = fmaxf(out.maximum, __shfl_xor_sync(kAllLanes, out.maximum, offset));
  }
  out.maximum = out.maximum == -INFINITY ? kNoRows : ceilf(out.maximum);
#pragma unroll
  for (int i = 0; i < 2; ++i) out.weight[i] = Power(__fsub_rn(x[i], out.maximum));
  out.sum = __fadd_rn(out.weight[0], out.weight[1]);
#pragma unroll
  for (int offset = 8; offset > 0; offset /= 2) {
    out.sum = __fadd_rn(out.sum, __shfl_xor_sync(kAllLanes, out.sum, offset));
  }
  return out;
}

// Splits P into parts, times `factor` (a power of two) if RowNumbers::kScaledParts, and stores them
// in place of the warp's scores. In bf16, two parts would not be accurate enough (docs/kernels.md).
template <RowFormat kFormat, class Pair>
__device__ __forceinline__ void StoreParts(int warp, int lane, const float (&weight)[2],
                                           float factor, Pair (&pairs)[kSlices]) {
  const int step = lane % 16 / 8, i = lane / 16 + lane % 8 / 4 * 2;
  using Numbers = RowNumbers<kFormat>;
  const uint32_t scale = Bf16x2(factor, factor);
  float rest[2] = {weight[0], weight[1]};
  __syncwarp();  // all lanes have read their scores
#pragma unroll
  for (int n = 0; n < Numbers::kParts; ++n) {
    const uint32_t part = Numbers::Pair(rest[0], rest[1]);
    pairs[warp].parts[PartStep(warp, n, step)][lane % 4][i] =
        Numbers::kScaledParts ? MultiplyBf16x2(part, scale) : part;
    const float2 values = Numbers::Floats(part);
    rest[0] = __fsub_rn(rest[0], values.x);
    rest[1] = __fsub_rn(rest[1], values.y);
  }
}

// The pieces of the output that a warp computes: eight, two at a time.
__device__ __forceinline__ int PieceOf(int warp, int j, int half) {
  return 8 * (2 * j + half) + warp;
}

// The place of a lane's pair of elements of that piece in Partials::o.
__device__ __forceinline__ int PartialOf(int warp, int j, int half, int quad) {
  return ((warp * 4 + j) * 2 + half) * 4 + quad;
}

// The parts of P as fragments.
template <RowFormat kFormat>
struct PartFragments {
  static constexpr int kParts = RowNumbers<kFormat>::kParts;
  uint4 of[kParts][2];

  template <class Pair>
  __device__ __forceinline__ PartFragments(const Pair (&pairs)[kSlices], int lane) {
    const int pair = lane / 4;
#pragma unroll
    for (int i = 0; i < 2 * kParts; ++i) {
      of[i / 2][i % 2] = *reinterpret_cast<const uint4*>(
          pairs[pair].parts[PartStep(pair, i / 2, i % 2)][lane % 4]);
    }
  }
};

// P . rows for the two pieces j of a warp: sums[piece][head g or g + 8], a lane's pair of elements.
template <RowFormat kFormat>
__device__ __forceinline__ void SumRows(const PartFragments<kFormat>& parts, const RowPlaces& rows,
                                        int warp, int j, int lane, SumPair (&sums)[2][2]) {
  float products[2][4] = {};
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    uint32_t b[4];
    LoadTransposedMatrices(
        b, &rows[step * 16 + lane % 16][8 * (2 * j + lane / 16) + (warp ^ (lane % 8))]);
#pragma unroll
    for (int part = PartFragments<kFormat>::kParts - 1; part >= 0; --part) {
      const uint4 a = parts.of[part][step];
      MmaRows<kFormat>(products[0], a.x, a.y, a.z, a.w, b[0], b[1]);
      MmaRows<kFormat>(products[1], a.x, a.y, a.z, a.w, b[2], b[3]);
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[half][i / 2].of[i % 2] = products[half][i];
  }
}

}  // namespace dsv4::sm12x
