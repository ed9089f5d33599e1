// SPDX-License-Identifier: Apache-2.0
// What becomes of 16 heads (the M of m16n8k16) and a chunk of 32 rows in sparse_attention, for both
// of its forms. See sparse_attention.cu for the plan.
#pragma once

#include "kernels/sm12x/arch/mma.cuh"
#include "kernels/sm12x/arch/threads.cuh"
#include "kernels/sm12x/attention_rows.cuh"

namespace dsv4::sm12x {

inline constexpr float kNoRows = -1e30f;  // the maximum of a chunk without rows

// 2^x of a whole x <= 0; 0 below the normal numbers.
__device__ __forceinline__ float PowerOfTwo(float x) {
  return x < -126.0f ? 0.0f : __int_as_float((static_cast<int>(x) + 127) << 23);
}

// 2^(i / 32) as pairs of f32.
inline constexpr int kPowerSteps = 32;
struct Powers {
  float2 steps[kPowerSteps];
};
constexpr Powers MakePowers() {
  constexpr double kStep = 1.0218971486541166782;  // 2^(1 / 32)
  Powers powers{};
  double power = 1;
  for (float2& step : powers.steps) {
    step.x = static_cast<float>(power);
    step.y = static_cast<float>(power - step.x);
    power *= kStep;
  }
  return powers;
}
static __device__ const Powers kPowers = MakePowers();

// 2^(x / 32 - maximum), not much above 1, to about 2^-31; 0 below 2^-100. Lane i holds 2^(i / 32),
// and so all lanes take part in each power.
class PowerTable {
 public:
  __device__ __forceinline__ explicit PowerTable(int lane) : step_(kPowers.steps[lane]) {}

  // `x` is normalised, `maximum` a whole number.
  __device__ __forceinline__ TwoFloat operator()(TwoFloat x, float maximum) const {
    const float n = rintf(x.hi), exponent = __fmaf_rn(-kPowerSteps, maximum, n);
    const float f = __fadd_rn(__fsub_rn(x.hi, n), x.lo);
    // Whole numbers above 1.5 2^23 are bits of the sum.
    const uint32_t bits = __float_as_uint(__fadd_rn(exponent, 12582912.0f));
    const float high = __shfl_sync(kAllLanes, step_.x, static_cast<int>(bits % kPowerSteps));
    const float low = __shfl_sync(kAllLanes, step_.y, static_cast<int>(bits % kPowerSteps));
    // 2^(f / 32) - 1, which is below 0.011.
    float q = 9.17256270e-9f;
    q = __fmaf_rn(q, f, 1.69385097e-6f);
    q = __fmaf_rn(q, f, 2.34596198e-4f);
    q = __fmaf_rn(q, f, 2.16608494e-2f);
    const float more = __fmaf_rn(high, __fmul_rn(q, f), low);
    const float sum = __fadd_rn(high, more), rest = __fsub_rn(more, __fsub_rn(sum, high));
    const float power = __uint_as_float((bits / kPowerSteps << 23) + 0x3f800000u);
    const bool none = exponent < -100.0f * kPowerSteps;
    return {none ? 0.0f : __fmul_rn(sum, power), none ? 0.0f : __fmul_rn(rest, power)};
  }

 private:
  float2 step_;
};

// 2^x of a whole x <= 0, 0 below 2^-60: such sums are nothing beside the others, and those that are
// left stay exact when they are scaled.
__device__ __forceinline__ float Factor(float x) { return x < -60.0f ? 0.0f : PowerOfTwo(x); }

// What the chunks' sums so far are relative to: 2^maximum.
struct Running {
  float maximum = kNoRows;

  // Takes in a chunk; the factors of the old and the new sums.
  __device__ __forceinline__ float2 Raise(float chunk_maximum) {
    const float top = fmaxf(maximum, chunk_maximum);
    const float2 factors = make_float2(Factor(maximum - top), Factor(chunk_maximum - top));
    maximum = top;
    return factors;
  }
};

// Sums of two neighbouring elements: of the products that are many bits large, and of all others,
// with what the first rounds off.
struct SumPair {
  float hi[2], lo[2];

  __device__ __forceinline__ void Scale(float factor) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      hi[i] = __fmul_rn(hi[i], factor);
      lo[i] = __fmul_rn(lo[i], factor);
    }
  }
  __device__ __forceinline__ void Add(const SumPair& x) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float sum = __fadd_rn(hi[i], x.hi[i]), part = __fsub_rn(sum, hi[i]);
      const float rest =
          __fadd_rn(__fsub_rn(hi[i], __fsub_rn(sum, part)), __fsub_rn(x.hi[i], part));
      hi[i] = sum;
      lo[i] = __fadd_rn(lo[i], __fadd_rn(x.lo[i], rest));
    }
  }
  __device__ __forceinline__ float4 Stored() const {
    return make_float4(hi[0], hi[1], lo[0], lo[1]);
  }
};

// Divides a head's sums: bf16(sum * factor / denominator), the sink in the denominator.
struct Divisor {
  float factor = 0, inverse = 0;
  TwoFloat denominator;

  Divisor() = default;
  // `weights`: the sum of P, relative to 2^maximum; its first column is looked at.
  __device__ __forceinline__ Divisor(const PowerTable& powers, float maximum,
                                     const SumPair& weights, float sink) {
    constexpr double kScale = 1.4426950408889634074 * kPowerSteps;
    constexpr auto kHigh = static_cast<float>(kScale);
    const TwoFloat x = Product({sink, 0}, {kHigh, static_cast<float>(kScale - kHigh)});
    const float top = fmaxf(maximum, ceilf(x.hi / kPowerSteps));
    factor = PowerOfTwo(maximum - top);
    denominator = {weights.hi[0] * factor, weights.lo[0] * factor};
    denominator.Add(powers(x, top));
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
  float a = divisor.Divide(sum.hi[0], sum.lo[0]);
  float b = divisor.Divide(sum.hi[1], sum.lo[1]);
  if (rope.rotated) Rotate(&a, &b, rope.cosine, -rope.sine);
  return Bf16x2(a, b);
}

__device__ __forceinline__ const float* RopeOf(const AttendArgs& args, int64_t t) {
  const RopeTables& rope = args.step.rope;
  return (args.p.ratio == 0 ? rope.window : rope.compressed) + t * kKvRopeElements;
}

// Where the column of a head pair's scores lies, and where a step's parts: so that a warp's
// fragments touch all banks.
__device__ __forceinline__ int ScoreColumn(int pair, int column) {
  return column ^ (pair & 1) << 3;
}
__device__ __forceinline__ int PartStep(int pair, int part, int step) {
  return (2 * part + step) ^ (pair & 1);
}

// What a pair of queries is in steps of 2^-4; of 2^-3 from 4 on, and so forth. The rest is exact.
__device__ __forceinline__ uint32_t CoarseQueries(uint32_t pair) {
  constexpr uint32_t kTwelve = 0x41404140;  // from 8 to 16, bf16 numbers are 2^-4 apart
  return SubtractBf16x2(AddBf16x2(pair, kTwelve), kTwelve);
}

// Sums of the products that are many bits large, and of all others.
struct ScoreSums {
  static constexpr int kTiles = 2;  // of eight rows
  float major[kTiles][4] = {}, minor[kTiles][4] = {};
};

// The scores of 16 heads and rows 16 (warp / 4) .. + 15, over a quarter of the elements: every
// fourth 16, by warp % 4. The tensor cores cut sums off below about 2^-24 of the largest, and what
// matters is the absolute error, so that factors are split: coarse queries, whose rms is 1, times
// numbers of four bits, which rows but for the tail are, mostly sum up exactly; the rest is small.
// kFewRegisters, with `all` as in HoldBackLoads: not too many steps at once.
template <bool kFewRegisters>
__device__ __forceinline__ ScoreSums ScoreRows(const QueryTile& queries, const RowPlaces& rows,
                                               int warp, int lane, unsigned all) {
  constexpr int kTiles = ScoreSums::kTiles, kSteps = kKvRowElements / 16 / kQuarters;
  static_assert(kKvRopeElements == 16 * kQuarters, "the tail is the last step of each quarter");
  const int quarter = warp % kQuarters, head = lane % 16;
  const uint4* q_row = &queries[head][(2 * quarter + lane / 16) ^ (head & 7)];
  const uint4* row = &rows[warp / kQuarters * 16 + lane / 16 * 8 + lane % 8]
                          [(2 * quarter + lane / 8 % 2) ^ (lane % 8)];
  ScoreSums sums;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    if (kFewRegisters && step != 0) HoldBackLoads(all);
    uint32_t b[4], q[4], coarse[4], rest[4];
    LoadMatrices(b, row + 8 * step);
    LoadMatrices(q, q_row + 8 * step);
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      coarse[r] = CoarseQueries(q[r]);
      rest[r] = SubtractBf16x2(q[r], coarse[r]);
    }
    const bool tail = step == kSteps - 1;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const uint32_t b0 = b[2 * tile], b1 = b[2 * tile + 1];
      float(&major)[4] = sums.major[tile], (&minor)[4] = sums.minor[tile];
      if (tail) {
        MmaBf16(minor, coarse[0], coarse[1], coarse[2], coarse[3], LowerBits(b0), LowerBits(b1));
      }
      MmaBf16(major, coarse[0], coarse[1], coarse[2], coarse[3], tail ? UpperBits(b0) : b0,
              tail ? UpperBits(b1) : b1);
      MmaBf16(minor, rest[0], rest[1], rest[2], rest[3], b0, b1);
    }
  }
  return sums;
}

__device__ __forceinline__ void StoreScores(const ScoreSums& sums, int warp, int lane,
                                            HeadPairs& pairs) {
  const int quarter = warp % kQuarters, half = warp / kQuarters, pair = lane / 4;
#pragma unroll
  for (int tile = 0; tile < ScoreSums::kTiles; ++tile) {
    const int column = ScoreColumn(pair, 16 * half + 8 * tile + lane % 4 * 2);
    const float(&major)[4] = sums.major[tile], (&minor)[4] = sums.minor[tile];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      *reinterpret_cast<float4*>(&pairs[pair].scores[i][quarter][column]) =
          make_float4(major[2 * i], minor[2 * i], major[2 * i + 1], minor[2 * i + 1]);
    }
  }
}

// The head of a thread's weights among its tile's; its first column.
__device__ __forceinline__ int HeadOf(int warp, int lane) { return warp + lane / 16 * 8; }
__device__ __forceinline__ int ColumnOf(int lane) { return lane % 16 * 2; }

// The maximum of a thread's head, and P of its two columns relative to it.
struct ChunkWeights {
  float maximum;
  TwoFloat weight[2];
};

// Scores to P, two columns a thread. Every thread of a head gets its maximum.
__device__ __forceinline__ ChunkWeights MakeWeights(int warp, int lane, unsigned mask,
                                                    TwoFloat scale, const PowerTable& powers,
                                                    const HeadPairs& pairs) {
  const int column = ColumnOf(lane);
  const float2* scores = &pairs[warp].scores[lane / 16][0][ScoreColumn(warp, column)];
  TwoFloat x[2];
#pragma unroll
  for (int quarter = 0; quarter < kQuarters; ++quarter) {
    const float4 score = *reinterpret_cast<const float4*>(scores + quarter * kChunk);
    if (quarter == 0) {
      x[0] = {score.x, score.y};
      x[1] = {score.z, score.w};
    } else {
      x[0].Add(TwoFloat{score.x, score.y});
      x[1].Add(TwoFloat{score.z, score.w});
    }
  }
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
  out.maximum = out.maximum == -INFINITY ? kNoRows : ceilf(out.maximum / kPowerSteps);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const TwoFloat power = powers(x[i], out.maximum);
    out.weight[i] = present[i] ? power : TwoFloat{0, 0};
  }
  return out;
}

// P to its parts, times `factor`, a power of two, where the warp's scores were. The first part
// counts steps of 2^-10, so that its products with the rows mostly sum up exactly; the last is what
// the others leave, to 2^-36.
__device__ __forceinline__ void StoreParts(int warp, int lane, const ChunkWeights& weights,
                                           float factor, HeadPairs& pairs) {
  constexpr float kStep = 12288.0f;  // 1.5 2^13: floats there are 2^-10 apart
  const int step = lane % 16 / 8, i = lane / 16 + lane % 8 / 4 * 2;
  const uint32_t scale = Bf16x2(factor, factor);
  const TwoFloat(&weight)[2] = weights.weight;
  float rest[2] = {weight[0].hi, weight[1].hi};
  uint32_t part = Bf16x2(__fsub_rn(__fadd_rn(rest[0], kStep), kStep),
                         __fsub_rn(__fadd_rn(rest[1], kStep), kStep));
  __syncwarp();  // all lanes have read their scores
#pragma unroll
  for (int n = 0; n < kParts; ++n) {
    pairs[warp].parts[PartStep(warp, n, step)][lane % 4][i] = MultiplyBf16x2(part, scale);
    rest[0] = __fsub_rn(rest[0], Bf16Low(part));
    rest[1] = __fsub_rn(rest[1], Bf16High(part));
    // What is left of f32 by now has room for the low half.
    if (n == 1) {
      rest[0] = __fadd_rn(rest[0], weight[0].lo);
      rest[1] = __fadd_rn(rest[1], weight[1].lo);
    }
    part = Bf16x2(rest[0], rest[1]);
  }
}

// The pieces that a warp sums up, two at a time: seven quantised ones and, last, one of the tail,
// whose numbers have more bits.
__device__ __forceinline__ int PieceOf(int warp, int j, int half) {
  return 8 * (2 * j + half) + warp;
}

// Where a lane's pair of elements of that piece lies in the workspace.
__device__ __forceinline__ int PartialOf(int warp, int j, int half, int quad) {
  return ((warp * 4 + j) * 2 + half) * 4 + quad;
}

// P in fragments: in registers, or, where there are none to keep it in, fetched for each use.
template <bool kKept>
struct PartFragments {
  uint4 values[kKept ? kParts : 1][2];
  const uint4* steps[2];  // of the first part

  __device__ __forceinline__ PartFragments(const HeadPairs& pairs, int lane) {
    const int pair = lane / 4;
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      steps[step] =
          reinterpret_cast<const uint4*>(pairs[pair].parts[PartStep(pair, 0, step)][lane % 4]);
    }
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
  __device__ __forceinline__ uint4 Load(int part, int step) const { return steps[step][8 * part]; }
};

// What a fragment has of head g, i = 0, or g + 8.
__device__ __forceinline__ SumPair PairOf(const float (&major)[4], const float (&minor)[4], int i) {
  return {{major[2 * i], major[2 * i + 1]}, {minor[2 * i], minor[2 * i + 1]}};
}

// P . rows for the pieces j of a warp: sums[piece][head g or g + 8], a lane's pair of elements. The
// products of the first part with at most four bits are summed up apart from the others.
template <bool kKept>
__device__ __forceinline__ void SumRows(const PartFragments<kKept>& parts, const RowPlaces& rows,
                                        int warp, int j, int lane, SumPair (&sums)[2][2]) {
  float major[2][4] = {}, minor[2][4] = {};
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    uint32_t b[4];
    LoadTransposedMatrices(
        b, &rows[step * 16 + lane % 16][8 * (2 * j + lane / 16) + (warp ^ (lane % 8))]);
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
    for (int i = 0; i < 2; ++i) sums[half][i] = PairOf(major[half], minor[half], i);
  }
}

// The sums of P in the same way, by a row of ones.
template <bool kKept>
__device__ __forceinline__ void SumParts(const PartFragments<kKept>& parts, SumPair (&sums)[2]) {
  constexpr uint32_t kOnes = 0x3f803f80;
  float major[4] = {}, minor[4] = {};
#pragma unroll
  for (int step = 0; step < 2; ++step) {
#pragma unroll
    for (int part = kParts - 1; part >= 0; --part) {
      const uint4 a = parts(part, step);
      MmaBf16(part == 0 ? major : minor, a.x, a.y, a.z, a.w, kOnes, kOnes);
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) sums[i] = PairOf(major, minor, i);
}

}  // namespace dsv4::sm12x
