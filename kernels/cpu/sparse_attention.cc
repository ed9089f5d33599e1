// SPDX-License-Identifier: Apache-2.0
// sparse_attention: a unit of work is up to four neighbouring queries and four heads. First the
// scores of every query over its own list of rows, and their softmax, into per-worker scratch; then
// P . V in slices of 64 dims, query after query, so that the slice of the shared window is read
// from L2 once. Heads are blocked by four so that a row is widened once for all of them.
//
// Sums and softmax are in double, because the output is rounded to bf16 and then multiplied or
// quantised: the noise of f32 sums turns roundings, and a turned one becomes a step of 6 % behind
// an e4m3 quantiser.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/sparse_attention.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/cpu/attention_dot.h"
#include "kernels/cpu/entries.h"
#include "kernels/cpu/row_blocks.h"
#include "kernels/cpu/row_math-inl.h"
#include "kernels/op/attention.h"

#ifndef DSV4_KERNELS_CPU_SPARSE_ATTENTION_ONCE_
#define DSV4_KERNELS_CPU_SPARSE_ATTENTION_ONCE_
namespace dsv4 {

inline constexpr int64_t kHeadBlock = 4;
inline constexpr int64_t kQueryBlock = 4;

// Scratch of one worker, for each query of a unit.
struct QueryScratch {
  const uint16_t** rows;  // [max_rows]: its visible rows in the contract's order
  double* weights;        // [4][max_rows]: scores, then softmax numerators
  double inverse[kHeadBlock];
  int64_t count;
};

}  // namespace dsv4
#endif

HWY_BEFORE_NAMESPACE();
namespace dsv4 {
namespace HWY_NAMESPACE {

// The rows that row `t` of the step attends.
int64_t ListRows(const SparseAttentionParams& p, int64_t t, const uint16_t** rows) {
  const StepRows& step = *p.step;
  const int64_t position = step.positions[t];
  const SequenceRows& sequence = step.sequences[step.sequence_of[t]];
  int64_t count = 0;
  for (int64_t i = std::max(sequence.window_begin, position - kWindowTokens + 1); i <= position;
       ++i) {
    rows[count++] = reinterpret_cast<const uint16_t*>(
        p.window.Row(sequence.window_blocks[i / kWindowBlockTokens], i % kWindowBlockTokens));
  }
  if (p.ratio == 0) return count;
  const int64_t per_block = kGroupBlockTokens / p.ratio;
  const auto add = [&](int64_t g) {
    rows[count++] = reinterpret_cast<const uint16_t*>(
        p.groups.Row(sequence.group_blocks[g / per_block], g % per_block));
  };
  if (p.ratio == kCsaRatio) {
    const int32_t* selected = p.selected + t * p.topk;
    for (int32_t i = 0; i < p.topk && selected[i] >= 0; ++i) add(selected[i]);
  } else {
    const int64_t visible = VisibleGroups(position, p.ratio);
    for (int64_t g = 0; g < visible; ++g) add(g);
  }
  return count;
}

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SCALAR
constexpr int kTileRows = 2, kSliceVectors = 1;  // 8 sums in 16 registers
#else
constexpr int kTileRows = 4, kSliceVectors = 2;
#endif

// The even elements of each vector pair, then its odd ones.
HWY_INLINE void WidenQuery(const uint16_t* q, int64_t n, double* HWY_RESTRICT wide) {
  for (int64_t i = 0; i < n; i += kDoublePairLanes) {
    const DoublePair v = LoadDoublePair(q + i);
    hn::StoreU(v.even, DD(), wide + i);
    hn::StoreU(v.odd, DD(), wide + i + kDoubleLanes);
  }
}

// scores[h * stride + n] = q[h] . rows[n] for kHeads heads and kRows rows.
template <int kHeads, int kRows>
HWY_INLINE void ScoreTile(const double* HWY_RESTRICT q, const uint16_t* const* rows,
                          double* HWY_RESTRICT scores, int64_t stride) {
  const DD d;
  VD acc[kHeads * kRows];
  for (VD& a : acc) a = hn::Zero(d);
  for (int64_t i = 0; i < kKvRowElements; i += kDoublePairLanes) {
    DoublePair row[kRows];
    HWY_UNROLL(4)
    for (int n = 0; n < kRows; ++n) row[n] = LoadDoublePair(rows[n] + i);
    HWY_UNROLL(4)
    for (int h = 0; h < kHeads; ++h) {
      const VD even = hn::LoadU(d, q + h * kKvRowElements + i);
      const VD odd = hn::LoadU(d, q + h * kKvRowElements + i + kDoubleLanes);
      HWY_UNROLL(4)
      for (int n = 0; n < kRows; ++n) {
        VD& a = acc[h * kRows + n];
        a = hn::MulAdd(even, row[n].even, a);
        a = hn::MulAdd(odd, row[n].odd, a);
      }
    }
  }
  for (int h = 0; h < kHeads; ++h) {
    for (int n = 0; n < kRows; ++n) {
      scores[h * stride + n] = SumOfLanes(acc[h * kRows + n]);
    }
  }
}

// wide_q is scratch.
template <int kHeads>
HWY_INLINE void ScoreRows(const AttentionDot* dot, const uint16_t* q, const uint16_t* const* rows,
                          int64_t count, double* scores, int64_t stride, double* wide_q) {
  if (dot != nullptr) return dot->rows(q, kHeads, rows, count, scores, stride);
  WidenQuery(q, kHeads * kKvRowElements, wide_q);
  int64_t n = 0;
  for (; n + kTileRows <= count; n += kTileRows) {
    ScoreTile<kHeads, kTileRows>(wide_q, rows + n, scores + n, stride);
  }
  for (; n < count; ++n) ScoreTile<kHeads, 1>(wide_q, rows + n, scores + n, stride);
}

// Scores of one head become exp(score * scale - max); returns 1 / (their sum + the sink's term).
HWY_INLINE double Softmax(double* HWY_RESTRICT scores, int64_t count, double scale, double sink) {
  const DD d;
  const int64_t padded = (count + kDoubleLanes - 1) / kDoubleLanes * kDoubleLanes;
  for (int64_t n = count; n < padded; ++n) scores[n] = -HUGE_VAL;
  const VD factor = hn::Set(d, scale);
  VD top = hn::Set(d, sink);
  for (int64_t n = 0; n < padded; n += kDoubleLanes) {
    top = hn::Max(top, hn::Mul(hn::LoadU(d, scores + n), factor));
  }
  top = hn::MaxOfLanes(d, top);
  VD sum = hn::Zero(d);
  for (int64_t n = 0; n < padded; n += kDoubleLanes) {
    const VD e = ExpNonPositive(hn::Sub(hn::Mul(hn::LoadU(d, scores + n), factor), top));
    hn::StoreU(e, d, scores + n);
    sum = hn::Add(sum, e);
  }
  const double rest = hn::GetLane(ExpNonPositive(hn::Sub(hn::Set(d, sink), top)));
  return 1 / (SumOfLanes(sum) + rest);
}

// o[h, i .. i + kSliceVectors * kDoublePairLanes) = sum_n weights[h][n] * rows[n], times 1 / sum,
// rounded.
template <int kHeads>
HWY_INLINE void SumSlice(const QueryScratch& query, int64_t stride, int64_t i,
                         uint16_t* HWY_RESTRICT o) {
  const DD d;
  DoublePair acc[kHeads * kSliceVectors];
  for (DoublePair& a : acc) a = {hn::Zero(d), hn::Zero(d)};
  const double* HWY_RESTRICT weights = query.weights;
  for (int64_t n = 0; n < query.count; ++n) {
    const uint16_t* row = query.rows[n] + i;
    DoublePair value[kSliceVectors];
    HWY_UNROLL(2)
    for (int v = 0; v < kSliceVectors; ++v) value[v] = LoadDoublePair(row + v * kDoublePairLanes);
    HWY_UNROLL(4)
    for (int h = 0; h < kHeads; ++h) {
      const VD weight = hn::Set(d, weights[h * stride + n]);
      HWY_UNROLL(2)
      for (int v = 0; v < kSliceVectors; ++v) {
        DoublePair& a = acc[h * kSliceVectors + v];
        a.even = hn::MulAdd(weight, value[v].even, a.even);
        a.odd = hn::MulAdd(weight, value[v].odd, a.odd);
      }
    }
  }
  for (int h = 0; h < kHeads; ++h) {
    const VD inverse = hn::Set(d, query.inverse[h]);
    for (int v = 0; v < kSliceVectors; ++v) {
      const DoublePair& a = acc[h * kSliceVectors + v];
      StoreDoublePair({hn::Mul(a.even, inverse), hn::Mul(a.odd, inverse)},
                      o + h * kKvRowElements + i + v * kDoublePairLanes);
    }
  }
}

template <int kHeads>
void AttendHeads(const SparseAttentionParams& p, int64_t begin, int64_t end, int64_t head,
                 QueryScratch* queries, int64_t stride, const AttentionDot* dot, double* wide_q) {
  const auto at = [&](auto* base, int64_t t) {
    return base + (t * p.heads + head) * kKvRowElements;
  };
  for (int64_t t = begin; t < end; ++t) {
    QueryScratch& query = queries[t - begin];
    const uint16_t* q = at(static_cast<const uint16_t*>(p.q), t);
    ScoreRows<kHeads>(dot, q, query.rows, query.count, query.weights, stride, wide_q);
    for (int h = 0; h < kHeads; ++h) {
      query.inverse[h] =
          Softmax(query.weights + h * stride, query.count, p.softmax_scale, p.sink[head + h]);
    }
  }
  for (int64_t i = 0; i < kKvRowElements; i += kSliceVectors * kDoublePairLanes) {
    for (int64_t t = begin; t < end; ++t) {
      SumSlice<kHeads>(queries[t - begin], stride, i, at(static_cast<uint16_t*>(p.o), t));
    }
  }
  const float* tables = p.ratio == 0 ? p.step->rope.window : p.step->rope.compressed;
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t h = 0; h < kHeads; ++h) {
      RopeRow<true>(at(static_cast<uint16_t*>(p.o), t) + (h + 1) * kKvRowElements - kKvRopeElements,
                    tables + t * kKvRopeElements);
    }
  }
}

// Rows [begin, end) of the step (at most 4), heads [head, head + heads) (at most 4).
void Attend(const SparseAttentionParams& p, int64_t begin, int64_t end, int64_t head, int64_t heads,
            QueryScratch* queries, int64_t stride, const AttentionDot* dot, double* wide_q) {
  for (int64_t t = begin; t < end; ++t) {
    queries[t - begin].count = ListRows(p, t, queries[t - begin].rows);
  }
  switch (heads) {
    case 1:
      return AttendHeads<1>(p, begin, end, head, queries, stride, dot, wide_q);
    case 2:
      return AttendHeads<2>(p, begin, end, head, queries, stride, dot, wide_q);
    case 3:
      return AttendHeads<3>(p, begin, end, head, queries, stride, dot, wide_q);
    default:
      return AttendHeads<4>(p, begin, end, head, queries, stride, dot, wide_q);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace dsv4
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsv4 {
namespace {

HWY_EXPORT(Attend);

// The most rows that a query of this engine can attend, in whole vectors.
int64_t MaxRows(const SparseAttentionParams& p) {
  int64_t rows = std::min<int64_t>(kWindowTokens, std::max<int64_t>(p.step->max_position, 1));
  if (p.ratio != 0) {
    const int64_t visible = VisibleGroups(p.step->max_position, p.ratio);
    rows += p.ratio == kCsaRatio ? std::min<int64_t>(visible, p.topk) : visible;
  }
  return (rows + 15) / 16 * 16;
}

int64_t QueryBytes(int64_t max_rows) {
  return AlignUp(max_rows * static_cast<int64_t>(sizeof(void*))) + kHeadBlock * max_rows * 8;
}

int64_t WorkerBytes(int64_t max_rows) {
  return kQueryBlock * QueryBytes(max_rows) + kHeadBlock * kKvRowElements * 8;
}

int64_t WorkspaceSparseAttention(const SparseAttentionParams& p, int threads) {
  return threads * WorkerBytes(MaxRows(p));
}

// Queries of a unit: four, fewer while that leaves workers idle. Heads stay together: two workers
// with two heads each would read every row twice, and one query of the bundled model takes 4 us.
int64_t QueriesOfUnit(int64_t rows, int64_t head_blocks, int threads) {
  int64_t queries = kQueryBlock;
  while (queries > 1 && (rows + queries - 1) / queries * head_blocks < threads) queries /= 2;
  return queries;
}

void LaunchSparseAttention(const LaunchContext& context, const SparseAttentionParams& p) {
  const auto attend = HWY_DYNAMIC_DISPATCH(Attend);
  const AttentionDot* dot = ActiveAttentionDot();
  auto* stream = static_cast<CpuStream*>(context.stream);
  const int64_t max_rows = MaxRows(p), query_bytes = QueryBytes(max_rows), rows = p.step->rows;
  const int64_t head_blocks = (p.heads + kHeadBlock - 1) / kHeadBlock;
  const int64_t queries_of_unit = QueriesOfUnit(rows, head_blocks, stream->threads());
  const int64_t query_blocks = (rows + queries_of_unit - 1) / queries_of_unit;
  stream->ParallelFor(query_blocks * head_blocks, [&](int64_t unit, int worker) {
    QueryScratch queries[kQueryBlock];
    std::byte* scratch = context.workspace + worker * WorkerBytes(max_rows);
    for (QueryScratch& query : queries) {
      query.rows = reinterpret_cast<const uint16_t**>(scratch);
      query.weights = reinterpret_cast<double*>(
          scratch + AlignUp(max_rows * static_cast<int64_t>(sizeof(void*))));
      scratch += query_bytes;
    }
    auto* wide_q = reinterpret_cast<double*>(scratch);  // [4][512]
    const int64_t begin = unit / head_blocks * queries_of_unit;
    const int64_t head = unit % head_blocks * kHeadBlock;
    attend(p, begin, std::min(rows, begin + queries_of_unit), head,
           std::min<int64_t>(kHeadBlock, p.heads - head), queries, max_rows, dot, wide_q);
  });
}

}  // namespace

constinit const KernelEntry kCpuSparseAttention =
    MakeEntry<SparseAttentionParams, &LaunchSparseAttention, &SupportsAll<SparseAttentionParams>,
              &WorkspaceSparseAttention>("cpu.sparse_attention", Backend::kCpu,
                                         NumericsBit(Numerics::kPublished), 1);

}  // namespace dsv4
#endif  // HWY_ONCE
