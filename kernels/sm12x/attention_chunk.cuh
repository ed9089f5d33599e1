// SPDX-License-Identifier: Apache-2.0
// The parts of sparse_attention that its kernels share: which rows a query sees, and what becomes
// of 16 heads (the M of m16n8k16) and a chunk of 32 rows. See sparse_attention.cu for the plan.
#pragma once

#include "kernels/op/attention.h"
#include "kernels/sm12x/arch/memory.cuh"
#include "kernels/sm12x/arch/mma.cuh"
#include "kernels/sm12x/row_math.cuh"

namespace dsv4::sm12x {

inline constexpr int kHeadTile = 16;
inline constexpr int kChunk = 32;  // rows
inline constexpr int kSlices = 8;  // of a row, and warps of a tile of heads
inline constexpr int kSlice = 64;  // elements
inline constexpr int kPieces = kKvRowElements / 8;
inline constexpr float kNoRows = -1e30f;  // the maximum of a chunk without rows

// Chunk sums in the workspace, [rows, chunks, H] of each.
struct Partials {
  float* o;           // [512] in the order of fragments (PieceOf)
  uint16_t* o_low;    // [512]: what o rounded off, bf16
  float* maximum;     // a power of two's exponent
  TwoFloat* weights;  // sum of P
  int64_t chunks;     // in a row of the step, at most
};

struct AttendArgs {
  SparseAttentionParams p;
  StepRows step;
  TwoFloat scale;  // softmax_scale * log2(e)
  Partials partials;
  unsigned all_lanes;  // kAllLanes, for HoldBackLoads
};

// 2^x of a whole x <= 0; 0 below the normal numbers.
__device__ __forceinline__ float PowerOfTwo(float x) {
  return x < -126.0f ? 0.0f : __int_as_float((static_cast<int>(x) + 127) << 23);
}

// 2^(x - maximum), not much above 1, to about 2^-31; 0 below 2^-100. `x` is normalised, `maximum` a
// whole number.
__device__ __forceinline__ TwoFloat Exp2(TwoFloat x, float maximum) {
  const float n = rintf(x.hi), exponent = __fsub_rn(n, maximum);
  if (exponent < -100.0f) return {0, 0};
  const float whole = __fsub_rn(x.hi, n);
  const float f = __fadd_rn(whole, x.lo), rest = __fsub_rn(x.lo, __fsub_rn(f, whole));
  // 2^f = 1 + a f + b f^2 + f^3 q(f): the first three terms as pairs.
  float q = 1.32154867e-6f;
  q = __fmaf_rn(q, f, 1.52527338e-5f);
  q = __fmaf_rn(q, f, 1.54035304e-4f);
  q = __fmaf_rn(q, f, 1.33335581e-3f);
  q = __fmaf_rn(q, f, 9.61812911e-3f);
  q = __fmaf_rn(q, f, 5.55041087e-2f);
  constexpr double kA = 0.69314718055994530942, kB = 0.24022650695910071233;
  constexpr auto kHighA = static_cast<float>(kA), kHighB = static_cast<float>(kB);
  constexpr TwoFloat a{kHighA, static_cast<float>(kA - kHighA)};
  constexpr TwoFloat b{kHighB, static_cast<float>(kB - kHighB)};
  const TwoFloat linear = Product({f, 0}, a);
  const TwoFloat square{__fmul_rn(f, f), __fmaf_rn(f, f, -__fmul_rn(f, f))};
  TwoFloat sum = Product(square, b);
  sum.Add(__fmul_rn(__fmul_rn(square.hi, f), q));
  sum.Add(linear);
  sum.Add(1.0f);
  sum.lo = __fmaf_rn(__fmul_rn(rest, kHighA), sum.hi, sum.lo);
  const float power = __int_as_float((static_cast<int>(exponent) + 127) << 23);
  return {__fmul_rn(sum.hi, power), __fmul_rn(sum.lo, power)};
}

// The same, 0 below 2^-60: such sums are nothing beside the others, and those that are left stay
// exact when they are scaled.
__device__ __forceinline__ float Factor(float x) { return x < -60.0f ? 0.0f : PowerOfTwo(x); }

// What the chunks so far come to: sums relative to 2^maximum.
struct Running {
  float maximum = kNoRows;
  TwoFloat weights;

  // Takes in a chunk; the factors of the old and the new sums.
  __device__ __forceinline__ float2 Raise(float chunk_maximum) {
    const float top = fmaxf(maximum, chunk_maximum);
    const float2 factors = make_float2(Factor(maximum - top), Factor(chunk_maximum - top));
    maximum = top;
    return factors;
  }
  __device__ __forceinline__ void Add(TwoFloat chunk_weights, float2 factors) {
    weights = {weights.hi * factors.x, weights.lo * factors.x};
    weights.Add(TwoFloat{chunk_weights.hi * factors.y, chunk_weights.lo * factors.y});
  }
};

// A pair of a chunk's sums: f32, and what that rounded off as bf16.
struct SumPair {
  float hi[2];
  uint32_t lo;

  __device__ __forceinline__ void Scale(float factor) {
    hi[0] = __fmul_rn(hi[0], factor);
    hi[1] = __fmul_rn(hi[1], factor);
    lo = MultiplyBf16x2(lo, PackBf16(factor, factor));
  }
  __device__ __forceinline__ void Add(const SumPair& x) {
    float rest[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float sum = __fadd_rn(hi[i], x.hi[i]), part = __fsub_rn(sum, hi[i]);
      rest[i] = __fadd_rn(__fsub_rn(hi[i], __fsub_rn(sum, part)), __fsub_rn(x.hi[i], part));
      hi[i] = sum;
    }
    lo = AddBf16x2(AddBf16x2(lo, x.lo), PackBf16(rest[0], rest[1]));
  }
};

// Divides a head's sums: bf16(sum * factor / denominator), the sink in the denominator.
struct Divisor {
  float factor, inverse;
  TwoFloat denominator;

  Divisor() = default;
  __device__ __forceinline__ Divisor(const Running& running, float sink) {
    constexpr double kLog2E = 1.4426950408889634074;
    constexpr auto kHigh = static_cast<float>(kLog2E);
    const TwoFloat x = Product({sink, 0}, {kHigh, static_cast<float>(kLog2E - kHigh)});
    const float top = fmaxf(running.maximum, ceilf(x.hi));
    factor = PowerOfTwo(running.maximum - top);
    denominator = {running.weights.hi * factor, running.weights.lo * factor};
    denominator.Add(Exp2(x, top));
    const float hi = denominator.Rounded();
    denominator = {hi, __fadd_rn(__fsub_rn(denominator.hi, hi), denominator.lo)};
    inverse = __fdiv_rn(1.0f, hi);
  }
  __device__ __forceinline__ float Divide(float sum, float low) const {
    const float value = __fmul_rn(sum, factor);
    const float quotient = __fmul_rn(value, inverse);
    float rest = __fmaf_rn(-quotient, denominator.hi, value);
    rest += __fmaf_rn(-quotient, denominator.lo, __fmul_rn(low, factor));
    return RoundBf16(__fmaf_rn(rest, inverse, quotient));
  }
};

// The angle of elements 2 `pair` and 2 `pair` + 1 of a row, where they belong to its tail.
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

// A pair of a head's output, divided; one of the tail rotated back.
__device__ __forceinline__ uint32_t FinishPair(const SumPair& sum, const Divisor& divisor,
                                               const RopePair& rope) {
  float a = divisor.Divide(sum.hi[0], Bf16Low(sum.lo));
  float b = divisor.Divide(sum.hi[1], Bf16High(sum.lo));
  if (rope.rotated) Rotate(&a, &b, rope.cosine, -rope.sine);
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
    const int64_t position = args.step.positions[t];
    sequence = args.step.sequence_of[t];
    if (sequence < 0) {
      sequence = first_position = window = count = 0;
      return;
    }
    const int64_t oldest = position + 1 - kWindowTokens;
    const int64_t begin = args.step.sequences[sequence].window_begin;
    first_position = static_cast<int>(oldest > begin ? oldest : begin);
    window = static_cast<int>(position) + 1 - first_position;
    int64_t groups = 0;
    if (p.ratio == kCsaRatio) {
      groups = VisibleGroups(position, kCsaRatio);
      if (groups > p.topk) groups = p.topk;
    } else if (p.ratio == kHcaRatio) {
      groups = VisibleGroups(position, kHcaRatio);
    }
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
  // Whether what step one needs is there before the predecessors end.
  __device__ __forceinline__ bool KnownEarly(const AttendArgs& args, int n) const {
    return n < window || args.p.ratio != kCsaRatio;
  }
  // Whether an earlier step wrote the row, so that it, too, is there.
  __device__ __forceinline__ bool WrittenEarly(const AttendArgs& args, int n, int index) const {
    const int64_t first = args.step.sequences[sequence].first_position;
    return n < window ? index < first : (int64_t{index} + 1) * kHcaRatio <= first;
  }
  // Step two: its block; `index` may be -1.
  __device__ __forceinline__ int BlockOf(const AttendArgs& args, int n, int index) const {
    if (index < 0) return 0;
    const SequenceRows& rows = args.step.sequences[sequence];
    return (n < window ? rows.window_blocks : rows.group_blocks)[index >> BlockShift(args, n)];
  }
  // Block i of those that selected groups lie in; 0 where there is none.
  __device__ __forceinline__ int SelectableBlock(const AttendArgs& args, int i) const {
    const int groups = (first_position + window) / kCsaRatio;
    if (args.p.ratio != kCsaRatio || i << 6 >= groups) return 0;
    return args.step.sequences[sequence].group_blocks[i];
  }
  // Step three: its data, and its scales where the format has them.
  __device__ __forceinline__ void Locate(const AttendArgs& args, int n, int index, int block,
                                         const std::byte** row, const std::byte** scales) const {
    const RowPool& pool = n < window ? args.p.window : args.p.groups;
    const int slot = index & ((1 << BlockShift(args, n)) - 1);
    *row = pool.Row(block, slot);
    *scales = pool.Scales(block, slot);
  }

 private:
  // The binary logarithm of a block's rows.
  __device__ __forceinline__ int BlockShift(const AttendArgs& args, int n) const {
    static_assert(kWindowBlockTokens == 64 && kGroupBlockTokens / kCsaRatio == 64 &&
                  kGroupBlockTokens / kHcaRatio == 2);
    return n < window || args.p.ratio == kCsaRatio ? 6 : 1;
  }
};

// A chunk's rows in shared memory, bf16, and a tile's queries: pieces of eight elements, swizzled.
using ChunkRows = uint4[kChunk][kPieces];
using QueryTile = uint4[kHeadTile][kPieces];
// Its scores as pairs of f32, one from each half of the sums.
using ChunkScores = float2[2][kHeadTile][kChunk];
// P as four bf16 parts, in fragments of two K = 16 steps.
inline constexpr int kParts = 4;
using ChunkParts = uint32_t[kParts][2][32][4];

// Where the column of a head lies in ChunkScores: so that a warp's fragments touch all banks.
__device__ __forceinline__ int ScoreColumn(int head, int column) {
  return column ^ (head & 1) << 3;
}

// kRows of one slice of a chunk's rows, beginning at `first`, on their way to ChunkRows: in
// registers, or, kStaged, in shared memory, where a lane reads what it copied. Lane n knows row n
// of the chunk.
template <bool kPacked, int kRows, bool kStaged>
struct FetchedSlice {
  uint4 values[kStaged ? 1 : kRows / 4];
  uint32_t scale;  // of row `lane`: its ue8m0 code

  // Vectors of staging memory that a warp has, and where they begin.
  static constexpr int kPlainVectors = (kPacked ? kRows / 8 : kRows / 4) * 32;
  static constexpr int kStageVectors = (kSlices - 1) * kPlainVectors + kRows / 4 * 32;

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (uint4& value : values) value = make_uint4(0, 0, 0, 0);
    scale = 0;
  }

  // The rows in `mask`; leaves the others as they are, or, kStaged, zeros.
  __device__ __forceinline__ void Load(const std::byte* row, const std::byte* scales, unsigned mask,
                                       int first, int slice, int lane, uint4* stage = nullptr) {
    const auto load = [&](int i, int n, int offset) {
      const auto* from = reinterpret_cast<const std::byte*>(
          __shfl_sync(kAllLanes, reinterpret_cast<uint64_t>(row), n));
      const bool present = (mask >> n & 1) != 0;
      if constexpr (kStaged) {
        uint4* to = stage + slice * kPlainVectors + i * 32 + lane;
        if (present) {
          CopyAsync16(to, from + offset);
        } else {
          *to = make_uint4(0, 0, 0, 0);
        }
      } else if (present) {
        values[i] = *reinterpret_cast<const uint4*>(from + offset);
      }
    };
    if (kPacked && slice < kSlices - 1) {
      // 64 codes of e4m3: 16 a lane, eight rows at a time.
      if ((mask >> lane & 1) != 0) scale = static_cast<uint32_t>(scales[slice]);
#pragma unroll
      for (int i = 0; i < kRows / 8; ++i) {
        load(i, first + i * 8 + lane / 4, slice * kSlice + lane % 4 * 16);
      }
    } else {
      // 64 bf16: 8 a lane, four rows at a time.
      const int begin = kPacked ? kKvRowElements - kKvRopeElements : slice * kSlice * 2;
#pragma unroll
      for (int i = 0; i < kRows / 4; ++i) {
        load(i, first + i * 4 + lane / 8, begin + lane % 8 * 16);
      }
    }
    if constexpr (kStaged) CommitCopies();
  }

  __device__ __forceinline__ void Store(int first, int slice, int lane, ChunkRows& out,
                                        const uint4* stage = nullptr) const {
    if constexpr (kStaged) WaitForCopies<0>();
    const auto value = [&](int i) {
      if constexpr (kStaged) return stage[slice * kPlainVectors + i * 32 + lane];
      return values[i];
    };
    if (kPacked && slice < kSlices - 1) {
      // Sign, exponent and mantissa of a code, shifted to their places, are the value times 2^-120.
      // What makes that good and applies the scale is one bf16 factor but for large scales. A
      // broken run's scale is infinite, and so is what comes of it.
      constexpr uint32_t kLargest = 134;
      const uint32_t factors = (min(scale, kLargest) + 120) * 0x00800080u;
      const bool more = __any_sync(kAllLanes, scale > kLargest);
      const uint32_t rest =
          (scale == kBrokenScale ? 255 : max(scale, kLargest) - kLargest + 127) * 0x00800080u;
#pragma unroll
      for (int i = 0; i < kRows / 8; ++i) {
        const int n = first + i * 8 + lane / 4;
        const uint32_t factor = __shfl_sync(kAllLanes, factors, n);
        const uint4 v = value(i);
        const uint32_t words[4] = {v.x, v.y, v.z, v.w};
        uint32_t wide[8];
#pragma unroll
        for (int w = 0; w < 8; ++w) {
          const uint32_t codes = __byte_perm(words[w / 2], 0, w % 2 == 0 ? 0x1404 : 0x3424);
          const uint32_t small = (codes & 0x80008000u) | (codes >> 4 & 0x07f007f0u);
          wide[w] = MultiplyBf16x2(small, factor);
        }
        if (more) {
          const uint32_t factor2 = __shfl_sync(kAllLanes, rest, n);
#pragma unroll
          for (uint32_t& w : wide) w = MultiplyBf16x2(w, factor2);
        }
        const int piece = slice * 8 + lane % 4 * 2;
        out[n][piece ^ (n & 7)] = make_uint4(wide[0], wide[1], wide[2], wide[3]);
        out[n][(piece + 1) ^ (n & 7)] = make_uint4(wide[4], wide[5], wide[6], wide[7]);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kRows / 4; ++i) {
        const int n = first + i * 4 + lane / 8;
        out[n][(slice * 8 + lane % 8) ^ (n & 7)] = value(i);
      }
    }
  }
};

// A tile's queries on their way to shared memory, by 256 threads; zeros for heads beyond `heads`.
struct FetchedQueries {
  static constexpr int kVectors = kHeadTile * kPieces / (kSlices * 32);
  uint4 values[kVectors];

  __device__ __forceinline__ void Load(const AttendArgs& args, int64_t t, int first_head,
                                       int thread) {
    const auto* from =
        static_cast<const uint4*>(args.p.q) + (t * args.p.heads + first_head) * kPieces;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int at = thread + i * kSlices * 32;
      values[i] = first_head + at / kPieces < args.p.heads ? from[at] : make_uint4(0, 0, 0, 0);
    }
  }
  __device__ __forceinline__ void Store(int thread, QueryTile& out) const {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int at = thread + i * kSlices * 32, head = at / kPieces;
      out[head][at % kPieces ^ (head & 7)] = values[i];
    }
  }
};

// The queries' fragment of K = 16 step 4 `four` + `step`, which is below 4.
__device__ __forceinline__ void LoadQueries(const QueryTile& queries, int four, int step, int lane,
                                            uint32_t (&q)[4]) {
  const int head = lane % 16;
  LoadMatrices(q, &queries[head][8 * four + ((2 * step + lane / 16) ^ (head & 7))]);
}

// What a pair of queries is in steps of 2^-5; of 2^-4 from 2 on, and so forth. The rest is exact.
__device__ __forceinline__ uint32_t CoarseQueries(uint32_t pair) {
  constexpr uint32_t kSix = 0x40c040c0;  // from 4 to 8, bf16 numbers are 2^-5 apart
  return SubtractBf16x2(AddBf16x2(pair, kSix), kSix);
}

// The scores of 16 heads and rows 8 (warp / 2) .. + 7, over half of the elements: every other 32,
// by warp % 2. The tensor cores cut sums off below about 2^-24 of the largest, and what matters is
// the absolute error, so that factors are split: coarse queries, whose rms is 1, times numbers of
// four bits, which rows but for the tail are, mostly sum up exactly; the rest is small.
// kFewRegisters, with `all` as in HoldBackLoads: not too many steps at once.
template <bool kFewRegisters>
__device__ __forceinline__ void ScoreRows(const QueryTile& queries, const ChunkRows& rows, int warp,
                                          int lane, unsigned all, TwoFloat (&sums)[4]) {
  constexpr int kChains = 4, kTailPairs = kKvRopeElements / 32;
  const int n = warp / 2 * 8 + lane % 8;
#pragma unroll
  for (int chain = 0; chain < kChains; ++chain) {
    if (kFewRegisters && chain % 2 == 1) HoldBackLoads(all);
    float major[4] = {}, minor[4] = {};
#pragma unroll
    for (int i = 2 * chain; i < 2 * chain + 2; ++i) {
      const bool tail = i >= kKvRowElements / 64 - kTailPairs / 2;
      uint32_t b[4];
      LoadMatrices(b, &rows[n][8 * i + ((warp % 2 * 4 + lane / 8) ^ (n & 7))]);
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        uint32_t q[4];
        LoadQueries(queries, i, warp % 2 * 2 + s, lane, q);
        uint32_t coarse[4], rest[4];
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          coarse[r] = CoarseQueries(q[r]);
          rest[r] = SubtractBf16x2(q[r], coarse[r]);
        }
        const uint32_t b0 = b[2 * s], b1 = b[2 * s + 1];
        if (tail) {
          MmaBf16(minor, coarse[0], coarse[1], coarse[2], coarse[3], LowerBits(b0), LowerBits(b1));
        }
        MmaBf16(major, coarse[0], coarse[1], coarse[2], coarse[3], tail ? UpperBits(b0) : b0,
                tail ? UpperBits(b1) : b1);
        MmaBf16(minor, rest[0], rest[1], rest[2], rest[3], b0, b1);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (chain == 0) sums[i] = TwoFloat{};
      sums[i].Add(major[i]);
      sums[i].lo += minor[i];
    }
  }
}

__device__ __forceinline__ void StoreScores(const TwoFloat (&sums)[4], int warp, int lane,
                                            ChunkScores& scores) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int head = lane / 4 + 8 * i, column = warp / 2 * 8 + lane % 4 * 2;
    *reinterpret_cast<float4*>(&scores[warp % 2][head][ScoreColumn(head, column)]) =
        make_float4(sums[2 * i].hi, sums[2 * i].lo, sums[2 * i + 1].hi, sums[2 * i + 1].lo);
  }
}

// The maximum of a thread's head, and P of its two columns relative to it.
struct ChunkWeights {
  float maximum;
  TwoFloat weight[2];
};

// Scores to P, two columns a thread: head thread / 16. REQUIRES: threads 0 .. 255, in warps of
// neighbours. Every thread of a head gets its maximum.
__device__ __forceinline__ ChunkWeights MakeWeights(int thread, unsigned mask, TwoFloat scale,
                                                    const ChunkScores& scores) {
  const int head = thread / 16, column = thread % 16 * 2;
  const int at = ScoreColumn(head, column);
  const float4 first = *reinterpret_cast<const float4*>(&scores[0][head][at]);
  const float4 second = *reinterpret_cast<const float4*>(&scores[1][head][at]);
  TwoFloat x[2] = {{first.x, first.y}, {first.z, first.w}};
  x[0].Add(TwoFloat{second.x, second.y});
  x[1].Add(TwoFloat{second.z, second.w});
  ChunkWeights out;
  out.maximum = -INFINITY;
  bool present[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    present[i] = (mask >> (column + i) & 1) != 0;
    x[i] = Product(x[i], scale);
    const float sum = x[i].Rounded();
    x[i] = {sum, __fadd_rn(__fsub_rn(x[i].hi, sum), x[i].lo)};
    if (present[i]) out.maximum = fmaxf(out.maximum, sum);
  }
#pragma unroll
  for (int offset = 8; offset > 0; offset /= 2) {
    out.maximum = fmaxf(out.maximum, __shfl_xor_sync(kAllLanes, out.maximum, offset));
  }
  out.maximum = out.maximum == -INFINITY ? kNoRows : ceilf(out.maximum);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    out.weight[i] = present[i] ? Exp2(x[i], out.maximum) : TwoFloat{0, 0};
  }
  return out;
}

// P to its parts, times `factor`, a power of two. The first part counts steps of 2^-10, so that
// its products with the rows mostly sum up exactly; the last is what the others leave, to 2^-36.
__device__ __forceinline__ void StoreParts(int thread, const ChunkWeights& weights, float factor,
                                           ChunkParts& parts) {
  constexpr float kStep = 12288.0f;  // 1.5 2^13: floats there are 2^-10 apart
  const int head = thread / 16, quad = thread % 4;
  const int step = thread % 16 / 8, i = head / 8 + thread % 8 / 4 * 2;
  const uint32_t scale = PackBf16(factor, factor);
  const TwoFloat(&weight)[2] = weights.weight;
  float rest[2] = {weight[0].hi, weight[1].hi};
  uint32_t part = PackBf16(__fsub_rn(__fadd_rn(rest[0], kStep), kStep),
                           __fsub_rn(__fadd_rn(rest[1], kStep), kStep));
#pragma unroll
  for (int n = 0; n < kParts; ++n) {
    parts[n][step][head % 8 * 4 + quad][i] = MultiplyBf16x2(part, scale);
    rest[0] = __fsub_rn(rest[0], Bf16Low(part));
    rest[1] = __fsub_rn(rest[1], Bf16High(part));
    // What is left of f32 by now has room for the low half.
    if (n == 1) {
      rest[0] = __fadd_rn(rest[0], weight[0].lo);
      rest[1] = __fadd_rn(rest[1], weight[1].lo);
    }
    part = PackBf16(rest[0], rest[1]);
  }
}

// The sum of P over a head's 16 threads, in each of them; always in the same order.
__device__ __forceinline__ TwoFloat SumOfWeights(const ChunkWeights& weights) {
  TwoFloat sum = weights.weight[0];
  sum.Add(weights.weight[1]);
#pragma unroll
  for (int offset = 8; offset > 0; offset /= 2) {
    // Rounded the same way whichever of two comes first.
    const float hi = __shfl_xor_sync(kAllLanes, sum.hi, offset);
    sum.lo += __shfl_xor_sync(kAllLanes, sum.lo, offset);
    sum.Add(hi);
  }
  return sum;
}

// The pieces that a warp sums up, two at a time: seven quantised ones and, last, one of the tail,
// whose numbers have more bits.
__device__ __forceinline__ int PieceOf(int warp, int j, int half) {
  return 8 * (2 * j + half) + warp;
}

// Where a lane's four elements of the pieces j of a warp lie in the workspace, in fours.
__device__ __forceinline__ int PartialOf(int warp, int j, int quad) {
  return (warp * 4 + j) * 4 + quad;
}

// P in fragments: in registers, or, where there are none to keep it in, fetched for each use.
template <bool kKept>
struct PartFragments {
  uint4 values[kKept ? kParts : 1][2];
  const ChunkParts& parts;
  int lane;

  __device__ __forceinline__ PartFragments(const ChunkParts& parts, int lane)
      : parts(parts), lane(lane) {
    if constexpr (kKept) {
#pragma unroll
      for (int i = 0; i < 2 * kParts; ++i) values[i / 2][i % 2] = Load(i / 2, i % 2);
    }
  }
  __device__ __forceinline__ uint4 operator()(int part, int step) const {
    if constexpr (kKept) return values[part][step];
    return Load(part, step);
  }

 private:
  __device__ __forceinline__ uint4 Load(int part, int step) const {
    return *reinterpret_cast<const uint4*>(parts[part][step][lane]);
  }
};

// P . rows for the pieces j of a warp: sums[piece][head g or g + 8], a lane's pair of elements. The
// products of the first part with at most four bits are summed up apart from the others.
template <bool kKept>
__device__ __forceinline__ void SumRows(const PartFragments<kKept>& parts, const ChunkRows& rows,
                                        int warp, int j, int lane, SumPair (&sums)[2][2]) {
  float major[2][4] = {}, minor[2][4] = {};
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    uint32_t b[4];
    const int n = step * 16 + lane % 16;
    LoadTransposedMatrices(b, &rows[n][8 * (2 * j + lane / 16) + (warp ^ (n & 7))]);
#pragma unroll
    for (int part = kParts - 1; part >= 0; --part) {
      const uint4 a = parts(part, step);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t b0 = b[2 * half], b1 = b[2 * half + 1];
        if (part > 0) {
          MmaBf16(minor[half], a.x, a.y, a.z, a.w, b0, b1);
        } else if (j == 3 && half == 1) {
          MmaBf16(minor[half], a.x, a.y, a.z, a.w, LowerBits(b0), LowerBits(b1));
          MmaBf16(major[half], a.x, a.y, a.z, a.w, UpperBits(b0), UpperBits(b1));
        } else {
          MmaBf16(major[half], a.x, a.y, a.z, a.w, b0, b1);
        }
      }
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float rest[2];
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const float large = major[half][2 * i + c], small = minor[half][2 * i + c];
        sums[half][i].hi[c] = __fadd_rn(large, small);
        rest[c] = __fsub_rn(small, __fsub_rn(sums[half][i].hi[c], large));
      }
      sums[half][i].lo = PackBf16(rest[0], rest[1]);
    }
  }
}

}  // namespace dsv4::sm12x
