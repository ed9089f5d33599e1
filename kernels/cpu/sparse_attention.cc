// SPDX-License-Identifier: Apache-2.0
// sparse_attention: a unit of work is up to four neighbouring queries of one sequence and a range
// of heads. First their rows are listed; packed ones are unpacked into per-worker scratch, once for
// all queries and heads of the unit. Then, four heads at a time so that a row is converted once for
// them: the scores of every query over its own list of rows, and their softmax; and P . V in slices
// of 64 dims, query after query, so that the slice of the shared window is read from L2 once.
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
#include "kernels/cpu/cache_rows-inl.h"
#include "kernels/cpu/entries.h"
#include "kernels/cpu/row_blocks.h"
#include "kernels/cpu/row_math-inl.h"
#include "kernels/op/attention.h"

#ifndef DSV4_KERNELS_CPU_SPARSE_ATTENTION_ONCE_
#define DSV4_KERNELS_CPU_SPARSE_ATTENTION_ONCE_
namespace dsv4 {

inline constexpr int64_t kHeadBlock = 4;
inline constexpr int64_t kQueryBlock = 4;

// Scratch of one worker for each query of a unit.
struct QueryScratch {
  const uint16_t** rows;  // [max_rows]: its visible rows in the contract's order, bf16
  double* weights;        // [4][max_rows]: scores, then softmax numerators
  double inverse[kHeadBlock];
  int64_t count;
};

struct UnitScratch {
  QueryScratch queries[kQueryBlock];
  int64_t max_rows;
  double* wide_q;      // [4][512]
  uint16_t* unpacked;  // [MaxUnpackedRows][512]; null when the pools hold bf16
};

// Queries [begin, end), at most four, and heads [first_head, last_head).
struct AttentionUnit {
  int64_t begin, end;
  int64_t first_head, last_head;
};

}  // namespace dsv4
#endif

HWY_BEFORE_NAMESPACE();
namespace dsv4 {
namespace HWY_NAMESPACE {

// Lists the rows that the rows [begin, end) of the step attend, neighbours in one sequence; each
// row of the cache is unpacked once.
void ListRows(const SparseAttentionParams& p, int64_t begin, int64_t end, UnitScratch& scratch) {
  const StepRows& step = *p.step;
  const SequenceRows& sequence = step.sequences[step.sequence_of[begin]];
  const int64_t queries = end - begin;
  uint16_t* free = scratch.unpacked;
  const auto row_of = [&](const RowPool& pool, int32_t block, int64_t slot) -> const uint16_t* {
    if (pool.format == RowFormat::kBf16) {
      return reinterpret_cast<const uint16_t*>(pool.Row(block, slot));
    }
    if (pool.format == RowFormat::kFp8PerTensor) {
      UnpackFp8Row(pool.Row(block, slot), free);
    } else {
      UnpackRow(pool.Row(block, slot), pool.Scales(block, slot), free);
    }
    free += kKvRowElements;
    return free - kKvRowElements;
  };
  for (int64_t i = 0; i < queries; ++i) scratch.queries[i].count = 0;
  const auto append = [&](int64_t i, const uint16_t* row) {
    QueryScratch& query = scratch.queries[i];
    query.rows[query.count++] = row;
  };

  // Each query sees one position more than the one before it, and at most 128.
  if (p.block_rows > 0) {
    const int64_t block = sequence.first_position, block_end = block + sequence.rows;
    for (int64_t at = std::max(sequence.window_begin, block - kWindowTokens); at < block_end;
         ++at) {
      const uint16_t* row = row_of(p.window, sequence.window_blocks[at / kWindowBlockTokens],
                                   at % kWindowBlockTokens);
      for (int64_t i = 0; i < queries; ++i) append(i, row);
    }
    return;
  }
  const int64_t first = step.positions[begin], last = step.positions[end - 1];
  for (int64_t at = std::max(sequence.window_begin, first - kWindowTokens + 1); at <= last; ++at) {
    const uint16_t* row =
        row_of(p.window, sequence.window_blocks[at / kWindowBlockTokens], at % kWindowBlockTokens);
    const int64_t sees_first = std::max<int64_t>(0, at - first);
    const int64_t sees_last = std::min(queries - 1, at + kWindowTokens - 1 - first);
    for (int64_t i = sees_first; i <= sees_last; ++i) append(i, row);
  }
  if (p.ratio == 0) return;
  const int64_t per_block = kCompressedKvBlockTokens / p.ratio;
  const auto compressed_row = [&](int64_t g) {
    return row_of(p.compressed, sequence.compressed_kv_blocks[g / per_block], g % per_block);
  };
  if (p.ratio == kHcaRatio) {
    for (int64_t g = 0; g < VisibleCompressedBlocks(last, p.ratio); ++g) {
      const uint16_t* row = compressed_row(g);
      for (int64_t i = 0; i < queries; ++i) {
        if (g < VisibleCompressedBlocks(first + i, p.ratio)) append(i, row);
      }
    }
    return;
  }
  // Neighbours select much the same compressed blocks: their ascending lists are merged.
  const int32_t *next[kQueryBlock], *stop[kQueryBlock];
  for (int64_t i = 0; i < queries; ++i) {
    next[i] = p.selected + (begin + i) * p.topk;
    stop[i] = std::find(next[i], next[i] + p.topk, -1);
  }
  for (;;) {
    int32_t lowest = INT32_MAX;
    for (int64_t i = 0; i < queries; ++i) {
      if (next[i] != stop[i]) lowest = std::min(lowest, *next[i]);
    }
    if (lowest == INT32_MAX) return;
    const uint16_t* row = compressed_row(lowest);
    for (int64_t i = 0; i < queries; ++i) {
      if (next[i] == stop[i] || *next[i] != lowest) continue;
      append(i, row);
      ++next[i];
    }
  }
}

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SCALAR
constexpr int kTileRows = 2, kSliceVectors = 1;  // 8 sums in 16 registers
#else
constexpr int kTileRows = 4, kSliceVectors = 2;
#endif

// The even elements of each vector pair, then its odd ones.
HWY_INLINE void QueryToDouble(const uint16_t* q, int64_t n, double* HWY_RESTRICT wide) {
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
  QueryToDouble(q, kHeads * kKvRowElements, wide_q);
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
                 UnitScratch& scratch, const AttentionDot* dot) {
  QueryScratch* queries = scratch.queries;
  const int64_t stride = scratch.max_rows;
  const auto at = [&](auto* base, int64_t t) {
    return base + (t * p.heads + head) * kKvRowElements;
  };
  for (int64_t t = begin; t < end; ++t) {
    QueryScratch& query = queries[t - begin];
    const uint16_t* q = at(static_cast<const uint16_t*>(p.q), t);
    ScoreRows<kHeads>(dot, q, query.rows, query.count, query.weights, stride, scratch.wide_q);
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

void Attend(const SparseAttentionParams& p, const AttentionUnit& unit, UnitScratch& scratch,
            const AttentionDot* dot) {
  const StepRows& step = *p.step;
  for (int64_t begin = unit.begin, end; begin < unit.end; begin = end) {
    const SequenceRows& sequence = step.sequences[step.sequence_of[begin]];
    end = std::min<int64_t>(unit.end, int64_t{sequence.first_row} + sequence.rows);
    ListRows(p, begin, end, scratch);
    for (int64_t head = unit.first_head; head < unit.last_head; head += kHeadBlock) {
      switch (unit.last_head - head) {
        case 1:
          AttendHeads<1>(p, begin, end, head, scratch, dot);
          break;
        case 2:
          AttendHeads<2>(p, begin, end, head, scratch, dot);
          break;
        case 3:
          AttendHeads<3>(p, begin, end, head, scratch, dot);
          break;
        default:
          AttendHeads<4>(p, begin, end, head, scratch, dot);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace dsv4
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsv4 {
namespace {

HWY_EXPORT(Attend);

// The most compressed blocks that a query of this engine can attend.
int64_t MaxCompressedBlocks(const SparseAttentionParams& p) {
  if (p.ratio == 0) return 0;
  const int64_t visible = VisibleCompressedBlocks(p.step->max_position, p.ratio);
  return p.ratio == kCsaRatio ? std::min<int64_t>(visible, p.topk) : visible;
}

// The most rows that it can attend, in whole vectors.
int64_t MaxRows(const SparseAttentionParams& p) {
  const int64_t window =
      std::min<int64_t>(kWindowTokens, std::max<int64_t>(p.step->max_position, 1));
  return (window + p.block_rows + MaxCompressedBlocks(p) + 15) / 16 * 16;
}

// The most rows that a unit unpacks: at ratio 4 its queries may select different ones.
int64_t MaxUnpackedRows(const SparseAttentionParams& p) {
  int64_t rows = 0;
  if (p.window.format != RowFormat::kBf16) {
    rows += kWindowTokens + std::max<int64_t>(kQueryBlock - 1, p.block_rows);
  }
  if (p.compressed.format != RowFormat::kBf16) {
    rows += p.ratio == kCsaRatio ? std::min(kQueryBlock * MaxCompressedBlocks(p),
                                            VisibleCompressedBlocks(p.step->max_position, p.ratio))
                                 : MaxCompressedBlocks(p);
  }
  return rows;
}

// Where the parts of a worker's scratch begin.
struct Plan {
  explicit Plan(const SparseAttentionParams& p)
      : max_rows(MaxRows(p)),
        weights(AlignUp(max_rows * static_cast<int64_t>(sizeof(void*)))),
        query_bytes(weights + kHeadBlock * max_rows * 8),
        wide_q(kQueryBlock * query_bytes),
        unpacked(wide_q + kHeadBlock * kKvRowElements * 8),
        worker_bytes(unpacked + MaxUnpackedRows(p) * kKvRowElements * 2) {}
  int64_t max_rows, weights, query_bytes, wide_q, unpacked, worker_bytes;

  UnitScratch Scratch(std::byte* workspace, int worker) const {
    std::byte* const base = workspace + worker * worker_bytes;
    UnitScratch scratch;
    for (int64_t i = 0; i < kQueryBlock; ++i) {
      std::byte* const query = base + i * query_bytes;
      scratch.queries[i].rows = reinterpret_cast<const uint16_t**>(query);
      scratch.queries[i].weights = reinterpret_cast<double*>(query + weights);
    }
    scratch.max_rows = max_rows;
    scratch.wide_q = reinterpret_cast<double*>(base + wide_q);
    scratch.unpacked =
        unpacked < worker_bytes ? reinterpret_cast<uint16_t*>(base + unpacked) : nullptr;
    return scratch;
  }
};

int64_t WorkspaceSparseAttention(const SparseAttentionParams& p, int threads) {
  return threads * Plan(p).worker_bytes;
}

// Queries of a unit: four, or fewer if four would leave workers idle. The heads of a block stay
// together: two workers with two heads each would read every row twice.
int64_t QueriesOfUnit(int64_t rows, int64_t head_blocks, int threads) {
  int64_t queries = kQueryBlock;
  while (queries > 1 && (rows + queries - 1) / queries * head_blocks < threads) queries /= 2;
  return queries;
}

// Heads of a unit: all, so that rows are unpacked once, unless workers would have under two units.
int64_t HeadsOfUnit(int64_t query_blocks, int64_t head_blocks, int threads) {
  const int64_t parts = std::clamp<int64_t>(2 * threads / query_blocks, 1, head_blocks);
  return (head_blocks + parts - 1) / parts * kHeadBlock;
}

void LaunchSparseAttention(const LaunchContext& context, const SparseAttentionParams& p) {
  const auto attend = HWY_DYNAMIC_DISPATCH(Attend);
  const AttentionDot* dot = ActiveAttentionDot();
  auto* stream = static_cast<CpuStream*>(context.stream);
  const Plan plan(p);
  const int64_t rows = p.step->rows, head_blocks = (p.heads + kHeadBlock - 1) / kHeadBlock;
  const int64_t queries = QueriesOfUnit(rows, head_blocks, stream->threads());
  const int64_t query_blocks = (rows + queries - 1) / queries;
  const int64_t heads = HeadsOfUnit(query_blocks, head_blocks, stream->threads());
  const int64_t parts = (p.heads + heads - 1) / heads;
  stream->ParallelFor(query_blocks * parts, [&](int64_t unit, int worker) {
    UnitScratch scratch = plan.Scratch(context.workspace, worker);
    const int64_t begin = unit / parts * queries, head = unit % parts * heads;
    attend(p,
           {begin, std::min(rows, begin + queries), head, std::min<int64_t>(p.heads, head + heads)},
           scratch, dot);
  });
}

}  // namespace

constinit const KernelEntry kCpuSparseAttention =
    MakeEntry<SparseAttentionParams, &LaunchSparseAttention, &SupportsRows<SparseAttentionParams>,
              &WorkspaceSparseAttention>("cpu.sparse_attention", Backend::kCpu,
                                         NumericsBit(Numerics::kPublished), 1);

}  // namespace dsv4
#endif  // HWY_ONCE
