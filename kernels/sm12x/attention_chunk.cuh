// SPDX-License-Identifier: Apache-2.0
// The parts of sparse_attention that its kernels share: which rows a query sees, and what becomes
// of 16 heads (the M of m16n8k16) and a chunk of 32 rows. See sparse_attention.cu for the plan.
#pragma once

#include "kernels/op/attention.h"
#include "kernels/sm12x/arch/mma.cuh"
#include "kernels/sm12x/row_math.cuh"

namespace dsv4::sm12x {

inline constexpr int kHeadTile = 16;
inline constexpr int kChunk = 32;  // rows
inline constexpr int kSlices = 8;
inline constexpr int kSlice = 64;         // elements of a warp
inline constexpr float kNoRows = -1e30f;  // the maximum of a chunk without rows
// Chunk sums in the workspace, [rows, chunks, H] of each.
struct Partials {
  float* o;           // [512]
  float* maximum;     // a power of two's exponent
  TwoFloat* weights;  // sum of P
  int64_t chunks;     // in a row of the step, at most
};

struct AttendArgs {
  SparseAttentionParams p;
  StepRows step;
  TwoFloat scale;  // softmax_scale * log2(e)
  Partials partials;
};

// 2^x of a whole x <= 0; 0 below the normal numbers.
__device__ __forceinline__ float PowerOfTwo(float x) {
  return x < -126.0f ? 0.0f : __int_as_float((static_cast<int>(x) + 127) << 23);
}

// 2^(x + rest) for x <= 0 to about 2^-24.5, rest below 2^-10.
__device__ __forceinline__ float Exp2(float x, float rest) {
  if (x < -125.0f) return 0;
  const float n = rintf(x);
  const float f = __fadd_rn(__fsub_rn(x, n), rest);
  float q = 1.32154867e-6f;
  q = __fmaf_rn(q, f, 1.52527338e-5f);
  q = __fmaf_rn(q, f, 1.54035304e-4f);
  q = __fmaf_rn(q, f, 1.33335581e-3f);
  q = __fmaf_rn(q, f, 9.61812911e-3f);
  q = __fmaf_rn(q, f, 5.55041087e-2f);
  q = __fmaf_rn(q, f, 2.40226507e-1f);
  q = __fmaf_rn(q, f, 6.93147181e-1f);
  const float power = __int_as_float((static_cast<int>(n) + 127) << 23);
  return __fmul_rn(__fmaf_rn(q, f, 1.0f), power);
}

// What the chunks so far come to: sums relative to 2^maximum.
struct Running {
  float maximum = kNoRows;
  TwoFloat weights;

  // Takes in a chunk; the factors of the old and the new sums.
  __device__ __forceinline__ float2 Raise(float chunk_maximum) {
    const float top = fmaxf(maximum, chunk_maximum);
    const float2 factors = make_float2(PowerOfTwo(maximum - top), PowerOfTwo(chunk_maximum - top));
    maximum = top;
    return factors;
  }
  __device__ __forceinline__ void Add(TwoFloat chunk_weights, float2 factors) {
    weights = {weights.hi * factors.x, weights.lo * factors.x};
    weights.Add(TwoFloat{chunk_weights.hi * factors.y, chunk_weights.lo * factors.y});
  }
};

__device__ __forceinline__ float Folded(float sum, float chunk_sum, float2 factors) {
  return __fadd_rn(__fmul_rn(sum, factors.x), __fmul_rn(chunk_sum, factors.y));
}

// Divides a head's sums: bf16(sum * factor / denominator), the sink in the denominator.
struct Divisor {
  float factor, inverse;
  TwoFloat denominator;

  __device__ __forceinline__ Divisor(const Running& running, float sink) {
    constexpr double kLog2E = 1.4426950408889634074;
    constexpr auto kHigh = static_cast<float>(kLog2E);
    const TwoFloat x = Product({sink, 0}, {kHigh, static_cast<float>(kLog2E - kHigh)});
    const float top = fmaxf(running.maximum, ceilf(x.hi));
    factor = PowerOfTwo(running.maximum - top);
    denominator = {running.weights.hi * factor, running.weights.lo * factor};
    denominator.Add(Exp2(x.hi - top, x.lo));
    const float hi = denominator.Rounded();
    denominator = {hi, __fadd_rn(__fsub_rn(denominator.hi, hi), denominator.lo)};
    inverse = __fdiv_rn(1.0f, hi);
  }
  __device__ __forceinline__ float Divide(float sum) const {
    const float value = __fmul_rn(sum, factor);
    const float quotient = __fmul_rn(value, inverse);
    const float rest =
        __fmaf_rn(-quotient, denominator.lo, __fmaf_rn(-quotient, denominator.hi, value));
    return RoundBf16(__fmaf_rn(rest, inverse, quotient));
  }
};

// Elements 2 i and 2 i + 1 of a head's output, divided; those of the tail rotated back by `rope`.
__device__ __forceinline__ uint32_t FinishPair(float a, float b, int pair, const Divisor& divisor,
                                               const float* rope) {
  a = divisor.Divide(a);
  b = divisor.Divide(b);
  constexpr int kPlainPairs = (kKvRowElements - kKvRopeElements) / 2;
  if (pair >= kPlainPairs) {
    Rotate(&a, &b, rope[pair - kPlainPairs], -rope[32 + pair - kPlainPairs]);
  }
  return PackBf16(a, b);
}

__device__ __forceinline__ const float* RopeOf(const AttendArgs& args, int64_t t) {
  const RopeTables& rope = args.step.rope;
  return (args.p.ratio == 0 ? rope.window : rope.compressed) + t * kKvRopeElements;
}

// The rows that a query sees, in the contract's order; none for padding. Little state: it lives in
// registers beside the output's sums.
struct VisibleRows {
  int sequence;
  int first_position;  // of its window
  int window, count;

  __device__ __forceinline__ VisibleRows(const AttendArgs& args, int64_t t) {
    const SparseAttentionParams& p = args.p;
    sequence = args.step.sequence_of[t];
    if (sequence < 0) {
      sequence = first_position = window = count = 0;
      return;
    }
    const int64_t position = args.step.positions[t];
    const int64_t oldest = position + 1 - kWindowTokens;
    const int64_t begin = args.step.sequences[sequence].window_begin;
    first_position = static_cast<int>(oldest > begin ? oldest : begin);
    window = static_cast<int>(position) + 1 - first_position;
    int64_t groups = p.ratio == 0 ? 0 : VisibleGroups(position, p.ratio);
    if (p.ratio == kCsaRatio && groups > p.topk) groups = p.topk;
    count = window + static_cast<int>(groups);
  }
  __device__ __forceinline__ int chunks() const { return (count + kChunk - 1) / kChunk; }

  // Three steps from a row's number to its place, each with a load of its own that a pipeline can
  // wait for. Step one: the position or group of row n; -1 where there is none.
  __device__ __forceinline__ int IndexOf(const AttendArgs& args, int64_t t, int n) const {
    if (n >= count) return -1;
    if (n < window) return first_position + n;
    n -= window;
    return args.p.ratio == kCsaRatio ? args.p.selected[t * args.p.topk + n] : n;
  }
  // Step two: its block; `index` may be -1.
  __device__ __forceinline__ int BlockOf(const AttendArgs& args, int n, int index) const {
    if (index < 0) return 0;
    const SequenceRows& rows = args.step.sequences[sequence];
    return (n < window ? rows.window_blocks : rows.group_blocks)[index / PerBlock(args, n)];
  }
  // Step three: its data, and its scales where the format has them.
  __device__ __forceinline__ void Locate(const AttendArgs& args, int n, int index, int block,
                                         const std::byte** row, const std::byte** scales) const {
    const RowPool& pool = n < window ? args.p.window : args.p.groups;
    *row = pool.Row(block, index % PerBlock(args, n));
    *scales = pool.Scales(block, index % PerBlock(args, n));
  }

 private:
  __device__ __forceinline__ int PerBlock(const AttendArgs& args, int n) const {
    return static_cast<int>(n < window                  ? kWindowBlockTokens
                            : args.p.ratio == kCsaRatio ? kGroupBlockTokens / kCsaRatio
                                                        : kGroupBlockTokens / kHcaRatio);
  }
};

// Where the column of a head lies in `scores`: so that a warp's fragments touch all banks.
__device__ __forceinline__ int ScoreColumn(int head, int column) {
  return column ^ (head & 3) << 3;
}

// One chunk's scores: the segments of the slices; then in place of the first three P and the
// maxima.
using ChunkScores = float[kSlices][kHeadTile][kChunk];
// One slice of a chunk's rows in shared memory, bf16, swizzled: pieces of eight elements.
using SliceRows = uint4[kChunk][8];

// kRows of one slice of a chunk's rows, beginning at `first`, on their way to shared memory. Lane n
// knows row n of the chunk; `mask` has the rows that there are.
template <bool kPacked, int kRows>
struct FetchedSlice {
  uint4 values[kRows / 4];
  uint32_t scale;  // of row `lane`, as two bf16

  __device__ __forceinline__ void Load(const std::byte* row, const std::byte* scales, unsigned mask,
                                       int first, int slice, int lane) {
    const auto load = [&](int n, int offset) {
      const auto* from = reinterpret_cast<const std::byte*>(
          __shfl_sync(kAllLanes, reinterpret_cast<uint64_t>(row), n));
      return (mask >> n & 1) != 0 ? *reinterpret_cast<const uint4*>(from + offset)
                                  : make_uint4(0, 0, 0, 0);
    };
    if (kPacked && slice < kSlices - 1) {
      // 64 codes of e4m3: 16 a lane, eight rows at a time. A broken run's scale is infinite, and so
      // is what comes of it.
      scale = (mask >> lane & 1) != 0
                  ? max(static_cast<uint32_t>(scales[slice]) * 0x00800080u, 0x00400040u)
                  : 0;
#pragma unroll
      for (int i = 0; i < kRows / 8; ++i) {
        values[i] = load(first + i * 8 + lane / 4, slice * kSlice + lane % 4 * 16);
      }
    } else {
      // 64 bf16: 8 a lane, four rows at a time.
      const int begin = kPacked ? kKvRowElements - kKvRopeElements : slice * kSlice * 2;
#pragma unroll
      for (int i = 0; i < kRows / 4; ++i) {
        values[i] = load(first + i * 4 + lane / 8, begin + lane % 8 * 16);
      }
    }
  }

  __device__ __forceinline__ void Store(int first, int slice, int lane, SliceRows& out) const {
    if (kPacked && slice < kSlices - 1) {
#pragma unroll
      for (int i = 0; i < kRows / 8; ++i) {
        const int n = first + i * 8 + lane / 4;
        const uint32_t factor = __shfl_sync(kAllLanes, scale, n);
        const uint32_t words[4] = {values[i].x, values[i].y, values[i].z, values[i].w};
        uint32_t wide[8];
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          wide[2 * w] = MultiplyBf16x2(Fp8WidenedOperand::Widen(words[w], 0x1404), factor);
          wide[2 * w + 1] = MultiplyBf16x2(Fp8WidenedOperand::Widen(words[w], 0x3424), factor);
        }
        const int piece = lane % 4 * 2;
        out[n][piece ^ (n & 7)] = make_uint4(wide[0], wide[1], wide[2], wide[3]);
        out[n][(piece + 1) ^ (n & 7)] = make_uint4(wide[4], wide[5], wide[6], wide[7]);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kRows / 4; ++i) {
        const int n = first + i * 4 + lane / 8;
        out[n][lane % 8 ^ (n & 7)] = values[i];
      }
    }
  }
};

// A slice of 16 queries as fragments; zeros for heads beyond `heads`.
__device__ __forceinline__ void LoadQueries(const uint16_t* queries, int first_head, int heads,
                                            int warp, int lane, uint32_t (&q)[4][4]) {
#pragma unroll
  for (int step = 0; step < 4; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int head = first_head + lane / 4 + i % 2 * 8;
      const int column = warp * kSlice + step * 16 + i / 2 * 8 + lane % 4 * 2;
      q[step][i] =
          head < heads
              ? *reinterpret_cast<const uint32_t*>(queries + head * kKvRowElements + column)
              : 0;
    }
  }
}

// The warp's segment of the scores of 16 heads and 32 rows.
__device__ __forceinline__ void ScoreSlice(const uint32_t (&q)[4][4], const SliceRows& rows,
                                           int lane, float (&sums)[4][4]) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    sums[j][0] = sums[j][1] = sums[j][2] = sums[j][3] = 0;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {  // two steps of K = 16: pieces 2 i .. 2 i + 3
      uint32_t b[4];
      const int n = j * 8 + lane % 8;
      LoadMatrices(b, &rows[n][(2 * i + lane / 8) ^ (n & 7)]);
      MmaBf16(sums[j], q[i][0], q[i][1], q[i][2], q[i][3], b[0], b[1]);
      MmaBf16(sums[j], q[i + 1][0], q[i + 1][1], q[i + 1][2], q[i + 1][3], b[2], b[3]);
    }
  }
}

__device__ __forceinline__ void StoreScores(const float (&sums)[4][4], int slice, int lane,
                                            ChunkScores& scores) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int head = lane / 4 + 8 * i;
      *reinterpret_cast<float2*>(&scores[slice][head][ScoreColumn(head, j * 8 + lane % 4 * 2)]) =
          make_float2(sums[j][2 * i], sums[j][2 * i + 1]);
    }
  }
}

// The maximum of a thread's head, and P of its two columns.
struct ChunkWeights {
  float maximum, first, second;
};

// Scores to P, two columns a thread: head thread / 16, in place. REQUIRES: threads 0 .. 255, in
// warps of neighbours. Every thread of a head gets its maximum and sum.
__device__ __forceinline__ ChunkWeights MakeWeights(int thread, unsigned mask, TwoFloat scale,
                                                    ChunkScores& scores) {
  const int head = thread / 16, column = thread % 16 * 2;
  const int at = ScoreColumn(head, column);
  TwoFloat sums[2];
#pragma unroll
  for (int w = 0; w < kSlices; ++w) {
    const float2 segment = *reinterpret_cast<const float2*>(&scores[w][head][at]);
    sums[0].Add(segment.x);
    sums[1].Add(segment.y);
  }
  float maximum = -INFINITY;
  TwoFloat x[2];
  bool present[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    present[i] = (mask >> (column + i) & 1) != 0;
    x[i] = Product(sums[i], scale);
    if (present[i]) maximum = fmaxf(maximum, x[i].hi);
  }
#pragma unroll
  for (int offset = 8; offset > 0; offset /= 2) {
    maximum = fmaxf(maximum, __shfl_xor_sync(kAllLanes, maximum, offset));
  }
  maximum = maximum == -INFINITY ? kNoRows : ceilf(maximum);
  uint32_t parts[3];
  float weight[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    weight[i] = present[i] ? Exp2(__fsub_rn(x[i].hi, maximum), x[i].lo) : 0.0f;
  }
  float rest[2] = {weight[0], weight[1]};
#pragma unroll
  for (int part = 0; part < 3; ++part) {
    parts[part] = PackBf16(rest[0], rest[1]);
    rest[0] -= Bf16Low(parts[part]);
    rest[1] -= Bf16High(parts[part]);
  }
  *reinterpret_cast<uint2*>(&scores[0][head][at]) = make_uint2(parts[1], parts[2]);
  scores[1][head][at] = __uint_as_float(parts[0]);
  if (column == 0) scores[2][head][at] = maximum;
  return {maximum, weight[0], weight[1]};
}

// The sum of P over a head's 16 threads, in each of them; always in the same order.
__device__ __forceinline__ TwoFloat SumOfWeights(int thread, const ChunkWeights& weights) {
  TwoFloat sum{weights.first, 0};
  sum.Add(weights.second);
#pragma unroll
  for (int offset = 8; offset > 0; offset /= 2) {
    TwoFloat other;
    other.hi = __shfl_xor_sync(kAllLanes, sum.hi, offset);
    other.lo = __shfl_xor_sync(kAllLanes, sum.lo, offset);
    const bool upper = (thread & offset) != 0;
    TwoFloat first = upper ? other : sum;
    first.Add(upper ? sum : other);
    sum = first;
  }
  return sum;
}

// The high part of P in fragments of the two K = 16 steps. The others are fetched for each use:
// there are no registers to keep them in.
struct WeightFragments {
  uint32_t high[2][4];
  float maximum[2];  // of rows g and g + 8

  __device__ __forceinline__ WeightFragments(const ChunkScores& scores, int lane) {
#pragma unroll
    for (int step = 0; step < 2; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        high[step][i] = __float_as_uint(scores[1][Head(lane, i)][At(lane, step, i)]);
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      maximum[i] = scores[2][Head(lane, i)][ScoreColumn(Head(lane, i), 0)];
    }
  }
  // Where register i of a step lies.
  static __device__ __forceinline__ int Head(int lane, int i) { return lane / 4 + i % 2 * 8; }
  static __device__ __forceinline__ int At(int lane, int step, int i) {
    return ScoreColumn(lane / 4, step * 16 + i / 2 * 8 + lane % 4 * 2);
  }
};

// The warp's slice of P . rows for its elements 16 j .. 16 j + 15: two tiles of 8. Small parts
// first. `rest`: the middle and low parts.
__device__ __forceinline__ void SumRows(const WeightFragments& p,
                                        const float (&rest)[kHeadTile][kChunk],
                                        const SliceRows& rows, int j, int lane,
                                        float (&sums)[2][4]) {
  uint32_t b[2][4], middle[2][4], low[2][4];
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    const int n = step * 16 + lane / 8 % 2 * 8 + lane % 8;
    LoadTransposedMatrices(b[step], &rows[n][(2 * j + lane / 16) ^ (n & 7)]);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint2 v = *reinterpret_cast<const uint2*>(
          &rest[WeightFragments::Head(lane, i)][WeightFragments::At(lane, step, i)]);
      middle[step][i] = v.x;
      low[step][i] = v.y;
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[0][i] = sums[1][i] = 0;
  const auto add = [&](const uint32_t(&a)[2][4]) {
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      const uint32_t(&x)[4] = a[step];
      MmaBf16(sums[0], x[0], x[1], x[2], x[3], b[step][0], b[step][1]);
      MmaBf16(sums[1], x[0], x[1], x[2], x[3], b[step][2], b[step][3]);
    }
  };
  add(low);
  add(middle);
  add(p.high);
}

}  // namespace dsv4::sm12x
