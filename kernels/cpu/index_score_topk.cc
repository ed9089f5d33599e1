// SPDX-License-Identifier: Apache-2.0
// index_score_topk: scores of all visible compressed blocks, then an exact selection. Keys are
// transposed 32 at a time, still packed, so that a lane is a compressed block, and then unpacked: a
// head's scores need no sum over lanes, and a transposed panel serves all heads of up to sixteen
// neighbouring queries from L1. Rows that see no more than topk compressed blocks are not scored.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/index_score_topk.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/cpu/attention_dot.h"
#include "kernels/cpu/entries.h"
#include "kernels/cpu/row_blocks.h"
#include "kernels/cpu/row_math-inl.h"
#include "kernels/cpu/top_k.h"
#include "kernels/op/attention.h"
#include "lib/tensor/quant_format.h"

#ifndef DSV4_KERNELS_CPU_INDEX_SCORE_TOPK_ONCE_
#define DSV4_KERNELS_CPU_INDEX_SCORE_TOPK_ONCE_
namespace dsv4 {

inline constexpr int64_t kKeyPairs = kIndexKeyElements / 2;

// Which scores to compute: rows [row_begin, row_end) of the step, compressed blocks [block_begin,
// block_end) as far as a row sees them; row r's score of compressed block g goes to scores[(r -
// row_begin) * stride + g].
struct ScoreRange {
  int64_t row_begin, row_end;
  int64_t block_begin, block_end;  // block_begin a multiple of 32
  float* scores;
  int64_t stride;           // a multiple of 32
  float* weights;           // scratch [heads]
  const AttentionDot* dot;  // or null
};

}  // namespace dsv4
#endif

HWY_BEFORE_NAMESPACE();
namespace dsv4 {
namespace HWY_NAMESPACE {

// Bytes of data of a key in kIndexFp4, and words of four bytes or eight elements.
constexpr int64_t kKeyBytes = kIndexKeyElements / 2, kKeyWords = kKeyBytes / 4;
constexpr int64_t kRunWords = kFp4Run / 8;

// words[w][g] = word w of key g of 32, which lie one after the other.
HWY_INLINE void TransposeKeys(const std::byte* keys, uint32_t* HWY_RESTRICT words) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t g = 0; g < kPanelKeys; ++g) {
    for (int64_t w = 0; w < kKeyWords; ++w) {
      std::memcpy(&words[w * kPanelKeys + g], keys + g * kKeyBytes + 4 * w, 4);
    }
  }
#else
  const hn::FixedTag<uint32_t, 4> d32;
  const hn::Repartition<uint64_t, decltype(d32)> d64;
  for (int64_t g = 0; g < kPanelKeys; g += 4) {
    for (int64_t w = 0; w < kKeyWords; w += 4) {
      const auto load = [&](int64_t i) HWY_ATTR {
        return hn::LoadU(d32, reinterpret_cast<const uint32_t*>(keys + (g + i) * kKeyBytes) + w);
      };
      const auto a = load(0), b = load(1), c = load(2), e = load(3);
      const auto ab0 = hn::BitCast(d64, hn::InterleaveLower(d32, a, b));
      const auto ab1 = hn::BitCast(d64, hn::InterleaveUpper(d32, a, b));
      const auto ce0 = hn::BitCast(d64, hn::InterleaveLower(d32, c, e));
      const auto ce1 = hn::BitCast(d64, hn::InterleaveUpper(d32, c, e));
      const auto store = [&](auto v, int64_t i) HWY_ATTR {
        hn::StoreU(hn::BitCast(d32, v), d32, words + (w + i) * kPanelKeys + g);
      };
      store(hn::InterleaveLower(d64, ab0, ce0), 0);
      store(hn::InterleaveUpper(d64, ab0, ce0), 1);
      store(hn::InterleaveLower(d64, ab1, ce1), 2);
      store(hn::InterleaveUpper(d64, ab1, ce1), 3);
    }
  }
#endif
}

// Unpacks pairs of e2m1 codes, in the low bits of each half of a lane, to bf16. `exponent` is
// (s - 1) << 7 in both halves, for a run of scale s.
// - Code m is m << 6 added to the exponent, except for 0 and the only subnormal code, 1.
// - Code 1 is m << 6 without its mantissa bit, except where the number is subnormal in bf16, too.
HWY_INLINE VU DecodeE2M1(VU codes, VU exponent) {
#if HWY_TARGET == HWY_SCALAR
  uint32_t out = 0;
  for (int half = 0; half < 32; half += 16) {
    const uint32_t code = hn::GetLane(codes) >> half & 15, m = code & 7;
    const uint32_t base = hn::GetLane(exponent) >> half & 0xffff;
    uint32_t bits = m == 0 ? 0 : (m << 6) + base - (m == 1 ? std::min(base, 64u) : 0);
    bits |= (code & 8) << 12;
    out |= (bits & 0xffff) << half;
  }
  return hn::Set(DU(), out);
#else
  const hn::Repartition<uint16_t, DU> d;
  const auto code = hn::BitCast(d, codes), base = hn::BitCast(d, exponent);
  const auto m = hn::And(code, hn::Set(d, 7));
  const auto one = hn::Eq(m, hn::Set(d, 1)), zero = hn::Eq(m, hn::Zero(d));
  const auto mantissa = hn::IfThenElseZero(one, hn::Min(base, hn::Set(d, 64)));
  const auto bits = hn::Sub(hn::Add(hn::ShiftLeft<6>(m), base), mantissa);
  const auto sign = hn::ShiftLeft<12>(hn::And(code, hn::Set(d, 8)));
  return hn::BitCast(DU(), hn::Or(hn::IfThenZeroElse(zero, bits), sign));
#endif
}

// panel[d][g] = elements 2 d and 2 d + 1 of key g as bf16, of 32 keys and their scales.
HWY_INLINE void UnpackPanel(const std::byte* keys, const std::byte* scales,
                            uint32_t* HWY_RESTRICT panel) {
  static_assert(kIndexKeyElements / kFp4Run == 4, "the scales of a key are one word");
  const DU d;
  alignas(64) uint32_t words[kKeyWords * kPanelKeys];
  TransposeKeys(keys, words);
  for (int64_t g = 0; g < kPanelKeys; g += kLanes) {
    VU scale = hn::LoadU(d, reinterpret_cast<const uint32_t*>(scales) + g);
    for (int64_t run = 0; run < kKeyWords; run += kRunWords) {
      const VU field = hn::Sub(hn::And(scale, hn::Set(d, 0xff)), hn::Set(d, 1));
      const VU exponent = hn::Or(hn::ShiftLeft<7>(field), hn::ShiftLeft<23>(field));
      scale = hn::ShiftRight<8>(scale);
      for (int64_t w = run; w < run + kRunWords; ++w) {
        VU word = hn::LoadU(d, words + w * kPanelKeys + g);
        for (int64_t i = 0; i < 4; ++i) {
          const VU codes = hn::Or(hn::And(word, hn::Set(d, 0xf)),
                                  hn::ShiftLeft<12>(hn::And(word, hn::Set(d, 0xf0))));
          hn::StoreU(DecodeE2M1(codes, exponent), d, panel + (4 * w + i) * kPanelKeys + g);
          word = hn::ShiftRight<8>(word);
        }
      }
    }
  }
}

constexpr int kPanelVectors = kPanelKeys / kLanes;
using DHalf = hn::Half<DF>;
using DWide = hn::Rebind<double, DHalf>;
using VWide = hn::Vec<DWide>;
constexpr int kWides = kPanelKeys / hn::MaxLanes(DWide());

// sums[0 .. 2) += weight * v, in double: v's lower half, then its upper one (where a lane has one).
HWY_INLINE void AddWeighted(VF v, float weight, VWide* sums) {
  const auto w = hn::Set(DWide(), double{weight});
#if HWY_TARGET == HWY_SCALAR
  sums[0] = hn::MulAdd(w, hn::PromoteTo(DWide(), v), sums[0]);
#else
  const DHalf half;
  sums[0] = hn::MulAdd(w, hn::PromoteTo(DWide(), hn::LowerHalf(half, v)), sums[0]);
  sums[1] = hn::MulAdd(w, hn::PromoteTo(DWide(), hn::UpperHalf(half, v)), sums[1]);
#endif
}

// Adds weights[h] * max(0, q[h] . key) for kHeads heads to `sums`, in the order of the heads. A
// product of two FP4 round trips has so few bits that the dot is all but exact in f32; the sum over
// the heads is not, and a selection turns on its last place: it is in double.
template <int kHeads>
HWY_INLINE void AddHeads(const uint32_t* HWY_RESTRICT panel, const uint16_t* HWY_RESTRICT q,
                         const float* HWY_RESTRICT weights, VWide sums[kWides]) {
  const DF d;
  VF acc[kHeads * kPanelVectors];
  for (VF& a : acc) a = hn::Zero(d);
  for (int64_t i = 0; i < kKeyPairs; ++i) {
    HWY_UNROLL(16)
    for (int v = 0; v < kPanelVectors; ++v) {
      const VPair key = UnpackBf16(hn::LoadU(DU(), panel + i * kPanelKeys + v * kLanes));
      HWY_UNROLL(8)
      for (int h = 0; h < kHeads; ++h) {
        uint32_t pair;
        std::memcpy(&pair, q + h * kIndexKeyElements + 2 * i, 4);
        const VPair value = UnpackBf16(hn::Set(DU(), pair));
        VF& a = acc[h * kPanelVectors + v];
        a = hn::MulAdd(value.even, key.even, a);
        a = hn::MulAdd(value.odd, key.odd, a);
      }
    }
  }
  for (int h = 0; h < kHeads; ++h) {
    for (int v = 0; v < kPanelVectors; ++v) {
      const VF positive = hn::Max(acc[h * kPanelVectors + v], hn::Zero(d));
      AddWeighted(positive, weights[h], sums + v * (kWides / kPanelVectors));
    }
  }
}

void ScorePanel(const uint32_t* panel, const uint16_t* q, const float* weights, int64_t heads,
                float* scores) {
  constexpr int kBlock = kPanelVectors <= 2 ? 4 : 2;
  const DWide d;
  VWide sums[kWides];
  for (VWide& s : sums) s = hn::Zero(d);
  int64_t h = 0;
  for (; h + kBlock <= heads; h += kBlock) {
    AddHeads<kBlock>(panel, q + h * kIndexKeyElements, weights + h, sums);
  }
  for (; h < heads; ++h) AddHeads<1>(panel, q + h * kIndexKeyElements, weights + h, sums);
  for (int v = 0; v < kWides; ++v) {
    hn::StoreU(hn::DemoteTo(DHalf(), sums[v]), DHalf(), scores + v * hn::MaxLanes(d));
  }
}

void ScoreBlocks(const IndexScoreTopkParams& p, const ScoreRange& range) {
  const StepRows& step = *p.step;
  alignas(64) uint32_t panel[kKeyPairs * kPanelKeys];
  const int64_t per_block = kCompressedKvBlockTokens / kCsaRatio;
  for (int64_t begin = range.row_begin; begin < range.row_end;) {
    // Rows [begin, end) are neighbours of one sequence. They may be a part of its rows of the step.
    int64_t end = begin + 1;
    while (end < range.row_end && step.sequence_of[end] == step.sequence_of[begin]) ++end;
    const SequenceRows& sequence = step.sequences[step.sequence_of[begin]];
    const int64_t visible = VisibleCompressedBlocks(step.positions[end - 1], kCsaRatio);
    const int64_t stop = visible > p.topk ? std::min(visible, range.block_end) : 0;
    static_assert(kCompressedKvBlockTokens / kCsaRatio % kPanelKeys == 0);
    for (int64_t g = range.block_begin; g < stop; g += kPanelKeys) {
      // A panel lies in one block. Past the last visible compressed block its content is arbitrary,
      // and its scores are not read.
      const int32_t block = sequence.compressed_kv_blocks[g / per_block];
      UnpackPanel(p.keys.Row(block, g % per_block), p.keys.Scales(block, g % per_block), panel);
      for (int64_t r = begin; r < end; ++r) {
        const int64_t sees = VisibleCompressedBlocks(step.positions[r], kCsaRatio);
        if (sees <= p.topk || g >= sees) continue;
        const uint16_t* weights = static_cast<const uint16_t*>(p.weights) + r * p.heads;
        for (int64_t h = 0; h < p.heads; ++h) {
          range.weights[h] = Bf16ToFloat(weights[h]) * p.weight_scale;
        }
        const auto* q = static_cast<const uint16_t*>(p.q) + r * p.heads * kIndexKeyElements;
        const auto score = range.dot != nullptr ? range.dot->panel : &ScorePanel;
        score(panel, q, range.weights, p.heads,
              range.scores + (r - range.row_begin) * range.stride + g);
      }
    }
    begin = end;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace dsv4
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsv4 {
namespace {

HWY_EXPORT(ScoreBlocks);

constexpr int64_t kMaxRows = 16;           // queries that share a transposed panel
constexpr int64_t kMaxScores = 256 << 10;  // floats of scores of one unit, unless one row has more

// Compressed blocks of a unit when rows are few: about two microseconds.
int64_t SplitBlocks(int32_t heads) {
  return std::max<int64_t>(8192 / heads / kPanelKeys, 1) * kPanelKeys;
}

// Scratch of one worker: scores [rows][stride], weights [heads].
struct Plan {
  explicit Plan(const IndexScoreTopkParams& p)
      : stride(std::max<int64_t>(AlignUp(VisibleCompressedBlocks(p.step->max_position, kCsaRatio)),
                                 kPanelKeys)),
        rows(std::clamp<int64_t>(kMaxScores / stride, 1, kMaxRows)),
        worker_bytes(AlignUp(rows * stride * 4) + AlignUp(int64_t{p.heads} * 4)) {}
  int64_t stride, rows, worker_bytes;
  float* Scores(std::byte* workspace, int worker) const {
    return reinterpret_cast<float*>(workspace + worker * worker_bytes);
  }
  float* Weights(std::byte* workspace, int worker) const {
    return reinterpret_cast<float*>(workspace + worker * worker_bytes + AlignUp(rows * stride * 4));
  }
};

// Uses up the row's scores.
void SelectRow(const IndexScoreTopkParams& p, int64_t row, float* scores) {
  const int64_t visible = VisibleCompressedBlocks(p.step->positions[row], kCsaRatio);
  int32_t* out = p.selected + row * p.topk;
  if (visible > p.topk) {
    SelectTopK(scores, visible, p.topk, out);
    return;
  }
  for (int32_t i = 0; i < p.topk; ++i) out[i] = i < visible ? i : -1;
}

int64_t WorkspaceIndexScoreTopk(const IndexScoreTopkParams& p, int threads) {
  return threads * Plan(p).worker_bytes;
}

void LaunchIndexScoreTopk(const LaunchContext& context, const IndexScoreTopkParams& p) {
  const auto score = HWY_DYNAMIC_DISPATCH(ScoreBlocks);
  const AttentionDot* dot = ActiveAttentionDot();
  auto* stream = static_cast<CpuStream*>(context.stream);
  const Plan plan(p);
  const int64_t rows = p.step->rows, blocks = (rows + plan.rows - 1) / plan.rows;
  const auto scores_of = [&](int worker) { return plan.Scores(context.workspace, worker); };
  const auto weights_of = [&](int worker) { return plan.Weights(context.workspace, worker); };
  if (blocks >= stream->threads()) {
    ForRowBlocks(context, rows, plan.rows, [&](int64_t begin, int64_t end, int worker) {
      float* scores = scores_of(worker);
      score(p, {begin, end, 0, plan.stride, scores, plan.stride, weights_of(worker), dot});
      for (int64_t r = begin; r < end; ++r) SelectRow(p, r, scores + (r - begin) * plan.stride);
    });
    return;
  }
  // Few rows: the workers share each block's compressed blocks.
  float* scores = scores_of(0);
  for (int64_t begin = 0; begin < rows; begin += plan.rows) {
    const int64_t end = std::min(rows, begin + plan.rows);
    int64_t visible = 0;
    for (int64_t r = begin; r < end; ++r) {
      visible = std::max(visible, VisibleCompressedBlocks(p.step->positions[r], kCsaRatio));
    }
    if (visible > p.topk) {
      const int64_t split = SplitBlocks(p.heads);
      stream->ParallelFor((visible + split - 1) / split, [&](int64_t unit, int worker) {
        score(p, {begin, end, unit * split, (unit + 1) * split, scores, plan.stride,
                  weights_of(worker), dot});
      });
    }
    for (int64_t r = begin; r < end; ++r) SelectRow(p, r, scores + (r - begin) * plan.stride);
  }
}

}  // namespace

constinit const KernelEntry kCpuIndexScoreTopk =
    MakeEntry<IndexScoreTopkParams, &LaunchIndexScoreTopk, &SupportsRows<IndexScoreTopkParams>,
              &WorkspaceIndexScoreTopk>("cpu.index_score_topk", Backend::kCpu,
                                        NumericsBit(Numerics::kPublished), 1);

}  // namespace dsv4
#endif  // HWY_ONCE
