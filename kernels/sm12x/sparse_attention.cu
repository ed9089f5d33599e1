// SPDX-License-Identifier: Apache-2.0
// sparse_attention: o = softmax(q . rows * scale, with sink) . rows, then the inverse RoPE of its
// tail. Contract: kernels/op/attention.h; both pools packed or both bf16. Roofline: 584 bytes a row
// of the cache and 2048 H of a query; 4 x 512 flops a head and row, of which P . V is done three
// times. Latency at one query, tensor cores at many. Plan: a unit is 16 heads of one query (the M
// of m16n8k16) and a chunk of 32 of its rows. Eight warps; warp w has the elements 64 w .. 64 w +
// 63 of everything: it fetches that slice of the rows, widens it to bf16 (exact) in 4 KB of its own
// shared memory, multiplies it by its slice of the queries for one segment of the scores' sums, and
// later by P for its slice of the output. The block adds the eight segments in order, in pairs of
// f32, and makes P; shared memory holds the segments (16 KB), and in place of the first three P as
// three bf16 parts, 24 bits together. 48 KB a block, two blocks on a multiprocessor of SM12x. Few
// queries: a unit is a block; chunks' sums go to the workspace and a second kernel adds them in
// order. Many: a block goes through all chunks of its query, with the same additions: the same
// bits. Maxima are rounded up to whole powers of two, so that rescaling is exact.
// Accuracy: scores to about 2^-24 of |q| |row| / 8, exponentials to 2^-24, P . V in f32 chains of
// six products.
// Edge cases: -1 in the selection is a row of weight 0; heads beyond H are computed from zeros and
// dropped; padding rows are skipped.
// Credit: slices of one row for keys and values, and 16 heads a block, as in FlashInfer's and
// b12x's kernels for SM120.
#include <algorithm>
#include <cmath>

#include "kernels/op/attention.h"
#include "kernels/sm12x/arch/mma.cuh"
#include "kernels/sm12x/entries.h"
#include "kernels/sm12x/launch.h"
#include "kernels/sm12x/row_math.cuh"

namespace dsv4 {
namespace {

using namespace sm12x;  // NOLINT: the device code of this file

constexpr int kHeadTile = 16;
constexpr int kChunk = 32;  // rows
constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr int kSlice = 64;           // elements of a warp
constexpr float kNoRows = -1e30f;    // the maximum of a chunk without rows
constexpr int64_t kSplitUnits = 64;  // most (row, head tile) pairs with a block for each chunk
constexpr int64_t kSplitBytes = int64_t{256} << 20;
constexpr int64_t kSplitBlocks = 768;

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

// The rows that a query sees, in the contract's order. Little state: it lives in registers beside
// the output's sums.
struct VisibleRows {
  int sequence;
  int first_position;  // of its window
  int window, count;

  __device__ __forceinline__ VisibleRows(const AttendArgs& args, int64_t t) {
    const SparseAttentionParams& p = args.p;
    sequence = args.step.sequence_of[t];
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

  // The data of row n, and its scales where the format has them; false where there is none.
  __device__ __forceinline__ bool Find(const AttendArgs& args, int64_t t, int n,
                                       const std::byte** row, const std::byte** scales) const {
    if (n >= count) return false;
    const SparseAttentionParams& p = args.p;
    const bool in_window = n < window, csa = p.ratio == kCsaRatio;
    int at = in_window ? first_position + n : n - window;
    if (!in_window && csa) {
      at = p.selected[t * p.topk + at];
      if (at < 0) return false;
    }
    const int per_block = static_cast<int>(in_window ? kWindowBlockTokens
                                           : csa     ? kGroupBlockTokens / kCsaRatio
                                                     : kGroupBlockTokens / kHcaRatio);
    const SequenceRows& rows = args.step.sequences[sequence];
    const int32_t block = (in_window ? rows.window_blocks : rows.group_blocks)[at / per_block];
    const RowPool& pool = in_window ? p.window : p.groups;
    *row = pool.Row(block, at % per_block);
    *scales = pool.Scales(block, at % per_block);
    return true;
  }
};

struct AttendShared {
  uint4 rows[kWarps][kChunk][8];            // a warp's slice of the rows, bf16, swizzled
  float scores[kWarps][kHeadTile][kChunk];  // segments; then P and the maxima; swizzled
  // What all chunks so far come to, before an even and before an odd chunk.
  Running running[2][kHeadTile];
};

// Where the column of a head lies in `scores`: so that a warp's fragments touch all banks.
__device__ __forceinline__ int ScoreColumn(int head, int column) {
  return column ^ (head & 3) << 3;
}

// This warp's slice of a chunk's rows to shared memory. Lane n knows row n; `mask` has
// the rows that there are.
template <bool kPacked>
__device__ __forceinline__ void FetchSlice(const std::byte* row, const std::byte* scales,
                                           unsigned mask, int warp, int lane,
                                           uint4 (&out)[kChunk][8]) {
  const auto row_of = [&](int n) {
    return reinterpret_cast<const std::byte*>(
        __shfl_sync(kAllLanes, reinterpret_cast<uint64_t>(row), n));
  };
  if (kPacked && warp < kWarps - 1) {
    // 64 codes of e4m3: 16 a lane, eight rows at a time.
    // As two bf16. A broken run's is infinite, and so is what comes of it.
    const uint32_t scale_of_row =
        (mask >> lane & 1) != 0
            ? max(static_cast<uint32_t>(scales[warp]) * 0x00800080u, 0x00400040u)
            : 0;
    uint4 codes[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int n = i * 8 + lane / 4;
      const std::byte* from = row_of(n);
      codes[i] = make_uint4(0, 0, 0, 0);
      if ((mask >> n & 1) != 0) {
        codes[i] = *reinterpret_cast<const uint4*>(from + warp * kSlice + lane % 4 * 16);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int n = i * 8 + lane / 4;
      const uint32_t scale = __shfl_sync(kAllLanes, scale_of_row, n);
      const uint32_t words[4] = {codes[i].x, codes[i].y, codes[i].z, codes[i].w};
      uint32_t wide[8];
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        wide[2 * w] = MultiplyBf16x2(Fp8WidenedOperand::Widen(words[w], 0x1404), scale);
        wide[2 * w + 1] = MultiplyBf16x2(Fp8WidenedOperand::Widen(words[w], 0x3424), scale);
      }
      const int piece = lane % 4 * 2;
      out[n][piece ^ (n & 7)] = make_uint4(wide[0], wide[1], wide[2], wide[3]);
      out[n][(piece + 1) ^ (n & 7)] = make_uint4(wide[4], wide[5], wide[6], wide[7]);
    }
  } else {
    // 64 bf16: 8 a lane, four rows at a time.
    const int begin = kPacked ? kKvRowElements - kKvRopeElements : warp * kSlice * 2;
#pragma unroll 1
    for (int first = lane / 8; first < kChunk; first += kChunk / 2) {
      uint4 values[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int n = first + i * 4;
        const std::byte* from = row_of(n);
        values[i] = make_uint4(0, 0, 0, 0);
        if ((mask >> n & 1) != 0) {
          values[i] = *reinterpret_cast<const uint4*>(from + begin + lane % 8 * 16);
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int n = first + i * 4;
        out[n][lane % 8 ^ (n & 7)] = values[i];
      }
    }
  }
}

// The warp's slice of 16 queries as fragments; zeros for heads beyond `heads`. They are fetched
// anew for each chunk, from L1: there are no registers to keep them in beside the output's sums.
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
__device__ __forceinline__ void ScoreSlice(const uint32_t (&q)[4][4],
                                           const uint4 (&rows)[kChunk][8], int lane,
                                           float (&sums)[4][4]) {
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

struct ChunkWeights {
  float maximum;
  TwoFloat sum;
};

// Scores to P, two columns a thread: head threadIdx.x / 16, in place. Every thread of a head gets
// its maximum and sum.
__device__ __forceinline__ ChunkWeights MakeWeights(unsigned mask, TwoFloat scale,
                                                    float (&scores)[kWarps][kHeadTile][kChunk]) {
  const int head = static_cast<int>(threadIdx.x) / 16,
            column = static_cast<int>(threadIdx.x) % 16 * 2;
  const int at = ScoreColumn(head, column);
  TwoFloat sums[2];
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
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
  TwoFloat sum{weight[0], 0};
  sum.Add(weight[1]);
#pragma unroll
  for (int offset = 8; offset > 0; offset /= 2) {
    TwoFloat other;
    other.hi = __shfl_xor_sync(kAllLanes, sum.hi, offset);
    other.lo = __shfl_xor_sync(kAllLanes, sum.lo, offset);
    const bool upper = (threadIdx.x & static_cast<unsigned>(offset)) != 0;
    TwoFloat first = upper ? other : sum;
    first.Add(upper ? sum : other);
    sum = first;
  }
  return {maximum, sum};
}

// The high part of P in fragments of the two K = 16 steps. The others are fetched for each use:
// there are no registers to keep them in.
struct WeightFragments {
  uint32_t high[2][4];
  float maximum[2];  // of rows g and g + 8

  __device__ __forceinline__ WeightFragments(const float (&scores)[kWarps][kHeadTile][kChunk],
                                             int lane) {
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
                                        const uint4 (&rows)[kChunk][8], int j, int lane,
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

// Block (chunk, head tile, row): kSplit writes the sums of chunks blockIdx.x, + gridDim.x, ... to
// the workspace; otherwise one block adds all chunks and writes the output.
template <bool kPacked, bool kSplit>
__global__ void __launch_bounds__(kThreads, 2)
    sparse_attention_kernel(const __grid_constant__ AttendArgs args) {
  extern __shared__ __align__(128) unsigned char dynamic_memory[];
  AttendShared& shared = *reinterpret_cast<AttendShared*>(dynamic_memory);
  const SparseAttentionParams& p = args.p;
  const int t = static_cast<int>(kSplit ? blockIdx.z : blockIdx.y);
  const int first_head = static_cast<int>(kSplit ? blockIdx.y : blockIdx.x) * kHeadTile;
  if (args.step.sequence_of[t] < 0) return;
  const VisibleRows visible(args, t);
  const int chunks = visible.chunks();
  if (kSplit && static_cast<int>(blockIdx.x) >= chunks) return;
  const int warp = static_cast<int>(threadIdx.x) / 32;

  if (!kSplit && threadIdx.x < kHeadTile) shared.running[0][threadIdx.x] = Running();
  float o[kSplit ? 1 : 8][4] = {};
  const int stride = kSplit ? static_cast<int>(gridDim.x) : 1;
  for (int chunk = kSplit ? static_cast<int>(blockIdx.x) : 0; chunk < chunks; chunk += stride) {
    const int lane = FreshLane();
    const int g = lane / 4, quad = lane % 4;
    const std::byte *row = nullptr, *scales = nullptr;
    const bool present = visible.Find(args, t, chunk * kChunk + lane, &row, &scales);
    const unsigned mask = __ballot_sync(kAllLanes, present);
    FetchSlice<kPacked>(row, scales, mask, warp, lane, shared.rows[warp]);
    __syncwarp();
    float sums[4][4];
    {
      uint32_t q[4][4];
      LoadQueries(static_cast<const uint16_t*>(p.q) + int64_t{t} * p.heads * kKvRowElements,
                  first_head, p.heads, warp, lane, q);
      ScoreSlice(q, shared.rows[warp], lane, sums);
    }
    __syncthreads();  // nobody reads the last chunk's P any more
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int head = g + 8 * i;
        *reinterpret_cast<float2*>(
            &shared.scores[warp][head][ScoreColumn(head, j * 8 + 2 * quad)]) =
            make_float2(sums[j][2 * i], sums[j][2 * i + 1]);
      }
    }
    __syncthreads();
    const ChunkWeights weights = MakeWeights(mask, args.scale, shared.scores);
    __syncthreads();
    const WeightFragments fragments(shared.scores, lane);
    if constexpr (kSplit) {
      const int64_t at = (t * args.partials.chunks + chunk) * p.heads + first_head;
      const int own = static_cast<int>(threadIdx.x) / 16;
      if (threadIdx.x % 16 == 0 && first_head + own < p.heads) {
        args.partials.maximum[at + own] = weights.maximum;
        args.partials.weights[at + own] = weights.sum;
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float out[2][4];
        SumRows(fragments, shared.scores[0], shared.rows[warp], j, lane, out);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if (first_head + g + 8 * i >= p.heads) continue;
          float* to = args.partials.o + (at + g + 8 * i) * kKvRowElements + warp * kSlice + j * 16 +
                      2 * quad;
          *reinterpret_cast<float2*>(to) = make_float2(out[0][2 * i], out[0][2 * i + 1]);
          *reinterpret_cast<float2*>(to + 8) = make_float2(out[1][2 * i], out[1][2 * i + 1]);
        }
      }
    } else {
      if (threadIdx.x % 16 == 0) {
        Running running = shared.running[chunk % 2][threadIdx.x / 16];
        running.Add(weights.sum, running.Raise(weights.maximum));
        shared.running[(chunk + 1) % 2][threadIdx.x / 16] = running;
      }
      float2 factors[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        Running running = shared.running[chunk % 2][g + 8 * i];
        factors[i] = running.Raise(fragments.maximum[i]);
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float out[2][4];
        SumRows(fragments, shared.scores[0], shared.rows[warp], j, lane, out);
#pragma unroll
        for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            float& sum = o[2 * j + tile][i];
            sum = Folded(sum, out[tile][i], factors[i / 2]);
          }
        }
        __syncwarp();  // one step at a time: more of them under way take registers that are not
                       // there
      }
    }
    __syncwarp();  // before the slice is overwritten
  }
  if constexpr (!kSplit) {
    __syncthreads();
    const int g = threadIdx.x % 32 / 4, quad = threadIdx.x % 4;
    const float* rope = RopeOf(args, t);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int head = first_head + g + 8 * i;
      if (head >= p.heads) continue;
      const Divisor divisor(shared.running[chunks % 2][g + 8 * i], p.sink[head]);
      auto* to = reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(p.o) +
                                             (int64_t{t} * p.heads + head) * kKvRowElements);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const int pair = warp * (kSlice / 2) + j * 4 + quad;
        to[pair] = FinishPair(o[j][2 * i], o[j][2 * i + 1], pair, divisor, rope);
      }
    }
  }
}

constexpr int kCombineThreads = kKvRowElements / 4;

// Block (head, row): adds the chunks of one head in order.
__global__ void __launch_bounds__(kCombineThreads)
    combine_chunks_kernel(const __grid_constant__ AttendArgs args) {
  const SparseAttentionParams& p = args.p;
  const int64_t t = blockIdx.y, head = blockIdx.x;
  if (args.step.sequence_of[t] < 0) return;
  const int chunks = VisibleRows(args, t).chunks();
  const int64_t first = t * args.partials.chunks * p.heads + head;
  const auto* sums = reinterpret_cast<const float4*>(args.partials.o) + threadIdx.x;
  Running running;
  float4 o = make_float4(0, 0, 0, 0);
#pragma unroll 8
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const int64_t at = first + static_cast<int64_t>(chunk) * p.heads;
    const float4 out = sums[at * (kKvRowElements / 4)];
    const float2 factors = running.Raise(args.partials.maximum[at]);
    running.Add(args.partials.weights[at], factors);
    o = make_float4(Folded(o.x, out.x, factors), Folded(o.y, out.y, factors),
                    Folded(o.z, out.z, factors), Folded(o.w, out.w, factors));
  }
  const Divisor divisor(running, p.sink[head]);
  const float* rope = RopeOf(args, t);
  const int pair = static_cast<int>(threadIdx.x) * 2;
  auto* to =
      reinterpret_cast<uint2*>(static_cast<uint16_t*>(p.o) + (t * p.heads + head) * kKvRowElements);
  to[threadIdx.x] = make_uint2(FinishPair(o.x, o.y, pair, divisor, rope),
                               FinishPair(o.z, o.w, pair + 1, divisor, rope));
}

int64_t HeadTiles(const SparseAttentionParams& p) { return (p.heads + kHeadTile - 1) / kHeadTile; }

// The most chunks that a query of this engine has.
int64_t MaxChunks(const SparseAttentionParams& p) {
  int64_t rows = kWindowTokens;
  if (p.ratio != 0) {
    const int64_t visible = VisibleGroups(p.step->max_position, p.ratio);
    rows += p.ratio == kCsaRatio ? std::min<int64_t>(visible, p.topk) : visible;
  }
  return (rows + kChunk - 1) / kChunk;
}

int64_t SplitRowBytes(const SparseAttentionParams& p) {
  return MaxChunks(p) * p.heads * (kKvRowElements * 4 + 4 + 8) + 64;
}

// The most rows of a step that get a block for each chunk.
int64_t SplitRows(const SparseAttentionParams& p) {
  return std::min(kSplitUnits / HeadTiles(p), kSplitBytes / SplitRowBytes(p));
}

int64_t WorkspaceSparseAttention(const SparseAttentionParams& p, int) {
  return std::min<int64_t>(p.step->rows, SplitRows(p)) * SplitRowBytes(p);
}

absl::Status SupportsSparseAttention(const SparseAttentionParams& p) {
  if (absl::Status status = SupportsSm12xRows(p); !status.ok()) return status;
  if (p.ratio != 0 && p.window.format != p.groups.format) {
    return Unsupported("window rows in format ", RowFormatName(p.window.format),
                       " with compressed rows in format ", RowFormatName(p.groups.format));
  }
  return absl::OkStatus();
}

// More than the 48 KB that a kernel has without asking.
void AllowShared(void (*kernel)(AttendArgs)) {
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       static_cast<int>(sizeof(AttendShared)));
}

void LaunchSparseAttention(const LaunchContext& context, const SparseAttentionParams& params) {
  cudaStream_t stream = CudaStreamOf(context);
  const int64_t rows = params.step->rows, tiles = HeadTiles(params), chunks = MaxChunks(params);
  const bool packed = params.window.format == RowFormat::kPacked;
  constexpr double kLog2E = 1.4426950408889634074;
  const double scale = double{params.softmax_scale} * kLog2E;
  AttendArgs args{.p = params, .step = *params.step, .scale = {}, .partials = {}};
  args.scale.hi = static_cast<float>(scale);
  args.scale.lo = static_cast<float>(scale - args.scale.hi);
  if (rows > SplitRows(params)) {
    const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(rows));
    const auto kernel =
        packed ? sparse_attention_kernel<true, false> : sparse_attention_kernel<false, false>;
    AllowShared(kernel);
    kernel<<<grid, kThreads, sizeof(AttendShared), stream>>>(args);
    return;
  }
  const int64_t partials = rows * chunks * params.heads;
  args.partials.o = reinterpret_cast<float*>(context.workspace);
  args.partials.weights = reinterpret_cast<TwoFloat*>(args.partials.o + partials * kKvRowElements);
  args.partials.maximum = reinterpret_cast<float*>(args.partials.weights + partials);
  args.partials.chunks = chunks;
  const int64_t splits = std::min(chunks, std::max<int64_t>(1, kSplitBlocks / (rows * tiles)));
  const dim3 grid(static_cast<unsigned>(splits), static_cast<unsigned>(tiles),
                  static_cast<unsigned>(rows));
  const auto kernel =
      packed ? sparse_attention_kernel<true, true> : sparse_attention_kernel<false, true>;
  AllowShared(kernel);
  kernel<<<grid, kThreads, sizeof(AttendShared), stream>>>(args);
  const dim3 combine_grid(static_cast<unsigned>(params.heads), static_cast<unsigned>(rows));
  combine_chunks_kernel<<<combine_grid, kCombineThreads, 0, stream>>>(args);
}

}  // namespace

constinit const KernelEntry kSm12xSparseAttention =
    MakeEntry<SparseAttentionParams, &LaunchSparseAttention, &SupportsSparseAttention,
              &WorkspaceSparseAttention>("sm12x.sparse_attention", Backend::kCuda,
                                         NumericsBit(Numerics::kPublished), 1);

}  // namespace dsv4
