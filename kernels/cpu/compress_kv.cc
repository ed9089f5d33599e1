// SPDX-License-Identifier: Apache-2.0
// compress_kv: a unit of work is a run of compressed blocks of one sequence. Its blocks are
// pooled in order; the part A that its first block needs from the block
// before is pooled again from the step's rows (or read from the state when those rows came in an
// earlier step), by the same operations, so that units are independent and a chunk border changes
// no bit. State writes are done by the unit of the compressed block that their last row belongs
// to.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/compress_kv.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/cpu/cache_rows-inl.h"
#include "kernels/cpu/entries.h"
#include "kernels/cpu/row_blocks.h"
#include "kernels/cpu/row_math-inl.h"
#include "kernels/op/attention.h"

HWY_BEFORE_NAMESPACE();
namespace dsv4 {
namespace HWY_NAMESPACE {

// Rows of the step that enter one triple: those of positions [begin, end) of a compressed block,
// and the state before them (null = none yet).
struct PoolRows {
  const float* k;    // of position `begin`, at the part's first column
  const float* z;    // likewise
  const float* ape;  // likewise
  int64_t stride;    // floats between rows, in all three
  int64_t count;
  const float* carried;  // [3][dim] or null
};

// Online softmax: out [3][dim] = the triple after the rows, rounded to f32 after each of them. The
// sums behind a row's quantiser are the reference's to the bit: in double, rounded where it rounds.
// Four vectors of dims at a time keep their triples in registers and overlap their exponentials.
HWY_INLINE void Pool(const PoolRows& in, int64_t dim, float* out) {
  const DD d;
  const DHalf half;
  constexpr int kUnroll = kDoubleLanes == 1 ? 1 : 4;
  const auto score = [&](int64_t at) HWY_ATTR {
    return hn::PromoteTo(d, hn::Add(hn::LoadU(half, in.z + at), hn::LoadU(half, in.ape + at)));
  };
  for (int64_t i = 0; i < dim; i += kUnroll * kDoubleLanes) {
    VD top[kUnroll], weight[kUnroll], sum[kUnroll];
    int64_t first = 0;
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t at = i + u * kDoubleLanes;
      if (in.carried != nullptr) {
        top[u] = LoadDouble(in.carried + at);
        weight[u] = LoadDouble(in.carried + dim + at);
        sum[u] = LoadDouble(in.carried + 2 * dim + at);
      } else {
        top[u] = score(at);
        weight[u] = hn::Set(d, 1.0);
        sum[u] = LoadDouble(in.k + at);
        first = 1;
      }
    }
    for (int64_t r = first; r < in.count; ++r) {
      const int64_t row = r * in.stride + i;
      for (int u = 0; u < kUnroll; ++u) {
        const int64_t at = row + u * kDoubleLanes;
        const VD z = score(at);
        // One of the two factors is 1, the other exp of minus the distance.
        const VD e = ExpNonPositive(hn::Neg(hn::Abs(hn::Sub(z, top[u]))));
        const auto grows = hn::Gt(z, top[u]);
        const VD one = hn::Set(d, 1.0);
        const VD keep = hn::IfThenElse(grows, e, one), add = hn::IfThenElse(grows, one, e);
        top[u] = hn::Max(top[u], z);
        weight[u] = RoundToFloat(hn::MulAdd(weight[u], keep, add));
        sum[u] = RoundToFloat(hn::MulAdd(sum[u], keep, hn::Mul(add, LoadDouble(in.k + at))));
      }
    }
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t at = i + u * kDoubleLanes;
      StoreDouble(top[u], out + at);
      StoreDouble(weight[u], out + dim + at);
      StoreDouble(sum[u], out + 2 * dim + at);
    }
  }
}

// row = the pool of one triple, or of part A of the compressed block before (`previous`, may be
// null) and part B of this compressed block; rounded.
HWY_INLINE void Pooled(const float* previous, const float* current, int64_t dim, uint16_t* row) {
  for (int64_t i = 0; i < dim; i += kDoubleLanes) {
    VD weight = LoadDouble(current + dim + i), sum = LoadDouble(current + 2 * dim + i);
    if (previous != nullptr) {
      const VD a = LoadDouble(previous + i), b = LoadDouble(current + i);
      const VD top = hn::Max(a, b);
      const VD scale_a = ExpNonPositive(hn::Sub(a, top)), scale_b = ExpNonPositive(hn::Sub(b, top));
      weight = hn::MulAdd(weight, scale_b, hn::Mul(scale_a, LoadDouble(previous + dim + i)));
      sum = hn::MulAdd(sum, scale_b, hn::Mul(scale_a, LoadDouble(previous + 2 * dim + i)));
    }
    StoreDouble(hn::Div(sum, weight), row + i);
  }
}

// Writes the row of compressed block g, which ends at row `last_row` of the step, from its pooled
// values; uses them up.
HWY_INLINE void StoreCompressedRow(const CompressKvParams& p, const SequenceRows& sequence,
                                   int64_t g, int64_t last_row, uint16_t* row) {
  const int64_t dim = p.dim();
  const RopeTables& rope = p.step->rope;
  const float* table =
      (p.ratio == kCsaRatio ? rope.ratio4 : rope.ratio128) + last_row * kKvRopeElements;
  RmsNormRow(row, p.norm, dim, p.eps, row, nullptr);
  RopeRow(row + dim - kKvRopeElements, table);
  const int64_t per_block = kCompressedKvBlockTokens / p.ratio, slot = g % per_block;
  const int32_t block = sequence.compressed_kv_blocks[g / per_block];
  if (p.index_keys) {
    HadamardRow(row);
    PackIndexKey(row, p.rows.Row(block, slot), p.rows.Scales(block, slot));
  } else {
    StoreKvRow(row, p.rows, block, slot);
  }
}

// Compressed blocks [begin, end) of a sequence, and the state writes at positions inside or at the
// end of one of them. `scratch` holds three triples.
void CompressBlocks(const CompressKvParams& p, const SequenceRows& sequence, int64_t begin,
                    int64_t end, float* scratch) {
  const int64_t dim = p.dim(), width = p.width(), ratio = p.ratio, triple = 3 * dim;
  const int64_t first = sequence.first_position, stop = first + sequence.rows;
  const bool overlaps = ratio == kCsaRatio;
  const int64_t b = overlaps ? 2 * triple : 0;  // part B in a state, or the one part
  const auto* state_in = reinterpret_cast<const float*>(p.states.Slot(sequence.state_slot));

  // The rows of positions [from, to), all of one compressed block, at column `column`; `carried`:
  // the triple of the compressed block's earlier rows.
  const auto rows_of = [&](int64_t from, int64_t to, int64_t column, const float* carried) {
    const int64_t at = (sequence.first_row + from - first) * width + column;
    return PoolRows{.k = p.k + at,
                    .z = p.z + at,
                    .ape = p.ape + from % ratio * width + column,
                    .stride = width,
                    .count = to - from,
                    .carried = from % ratio != 0 ? carried : nullptr};
  };

  const float* previous = nullptr;  // part A of compressed block g - 1
  if (overlaps && begin > 0) {
    if (begin == first / ratio) {
      previous = state_in;
    } else {
      float* part = scratch + (begin - 1) % 2 * triple;
      const int64_t from = std::max(first, (begin - 1) * ratio);
      Pool(rows_of(from, begin * ratio, 0, state_in + triple), dim, part);
      previous = part;
    }
  }
  const StateWrite* const writes_end = sequence.state_writes + sequence.state_write_count;
  const StateWrite* write =
      std::find_if(sequence.state_writes, writes_end,
                   [&](const StateWrite& s) { return first + s.row > begin * ratio; });
  for (int64_t g = begin; g < end; ++g) {
    const int64_t block_end = (g + 1) * ratio, to = std::min(stop, block_end);
    const float *part_a = state_in + triple, *part_b = state_in + b;
    // From one state write to the next: each stores the triples so far.
    for (int64_t from = std::max(first, g * ratio), next; from < to; from = next) {
      next = write == writes_end ? to : std::min(to, first + write->row);
      const bool complete = next == block_end;
      float* state = nullptr;
      if (write != writes_end && next == first + write->row) {
        state = reinterpret_cast<float*>(p.states.Slot(write++->slot));
      }
      // Rows that do not complete the compressed block end at a write: the step's last row is one.
      float* pooled = complete ? scratch + 2 * triple : state + b;
      Pool(rows_of(from, next, overlaps ? dim : 0, part_b), dim, pooled);
      part_b = pooled;
      if (overlaps) {
        pooled = complete ? scratch + g % 2 * triple : state + triple;
        Pool(rows_of(from, next, 0, part_a), dim, pooled);
        part_a = pooled;
      }
      if (complete) {
        alignas(64) uint16_t row[kKvRowElements];
        Pooled(previous, part_b, dim, row);
        StoreCompressedRow(p, sequence, g, sequence.first_row + block_end - 1 - first, row);
        if (overlaps) previous = part_a;
      }
      if (state == nullptr) continue;
      if (previous != nullptr) std::copy_n(previous, triple, state);
      if (overlaps && previous == nullptr) std::fill_n(state, triple, 0.0f);
      if (complete) std::fill(state + (overlaps ? triple : 0), state + b + triple, 0.0f);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace dsv4
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsv4 {
namespace {

HWY_EXPORT(CompressBlocks);

// Compressed blocks of a unit: the part A pooled twice at its border is an eighth of a half of the
// work.
constexpr int64_t UnitBlocks(int64_t ratio) { return ratio == kCsaRatio ? 8 : 1; }

struct BlockRange {
  int64_t begin, end;
};

BlockRange TouchedBlocks(const SequenceRows& s, int64_t ratio) {
  return {s.first_position / ratio, (s.first_position + s.rows - 1) / ratio + 1};
}

int64_t UnitsOf(const SequenceRows& s, int64_t ratio) {
  const BlockRange compressed_blocks = TouchedBlocks(s, ratio);
  return (compressed_blocks.end - compressed_blocks.begin + UnitBlocks(ratio) - 1) /
         UnitBlocks(ratio);
}

int64_t ScratchBytes(const CompressKvParams& p) { return AlignUp(3 * 3 * p.dim() * 4); }

int64_t WorkspaceCompressKv(const CompressKvParams& p, int threads) {
  return threads * ScratchBytes(p);
}

void LaunchCompressKv(const LaunchContext& context, const CompressKvParams& p) {
  const auto compress = HWY_DYNAMIC_DISPATCH(CompressBlocks);
  const StepRows& step = *p.step;
  int64_t units = 0;
  for (int i = 0; i < step.sequence_count; ++i) units += UnitsOf(step.sequences[i], p.ratio);
  static_cast<CpuStream*>(context.stream)->ParallelFor(units, [&](int64_t unit, int worker) {
    const SequenceRows* s = step.sequences;
    for (int64_t of; unit >= (of = UnitsOf(*s, p.ratio)); ++s) unit -= of;
    const BlockRange compressed_blocks = TouchedBlocks(*s, p.ratio);
    const int64_t begin = compressed_blocks.begin + unit * UnitBlocks(p.ratio);
    auto* scratch = reinterpret_cast<float*>(context.workspace + worker * ScratchBytes(p));
    compress(p, *s, begin, std::min(compressed_blocks.end, begin + UnitBlocks(p.ratio)), scratch);
  });
}

}  // namespace

constinit const KernelEntry kCpuCompressKv =
    MakeEntry<CompressKvParams, &LaunchCompressKv, &SupportsRows<CompressKvParams>,
              &WorkspaceCompressKv>("cpu.compress_kv", Backend::kCpu,
                                    NumericsBit(Numerics::kPublished), 1);

}  // namespace dsv4
#endif  // HWY_ONCE
