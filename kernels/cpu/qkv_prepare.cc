// SPDX-License-Identifier: Apache-2.0
// qkv_prepare: norm and RoPE of the query heads in place; norm, RoPE and quantiser of the window
// row, written where it lives; RoPE, Hadamard rotation and fp4 round trip of the index heads. One
// pass over each row.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/qkv_prepare.cc"
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

HWY_INLINE void NormHead(uint16_t* x, float eps) {
  const VD r = hn::Set(DD(), InverseRms(SumOfSquares(x, kKvRowElements), kKvRowElements, eps));
  for (int64_t i = 0; i < kKvRowElements; i += kDoublePairLanes) {
    const DoublePair v = LoadDoublePair(x + i);
    StoreDoublePair({hn::Mul(v.even, r), hn::Mul(v.odd, r)}, x + i);
  }
}

void QkvPrepareRows(const QkvPrepareParams& p, int64_t begin, int64_t end) {
  constexpr int64_t kPlain = kKvRowElements - kKvRopeElements;
  const StepRows& step = *p.step;
  const float* tables = p.compressed_rope ? step.rope.compressed : step.rope.window;
  for (int64_t r = begin; r < end; ++r) {
    const float* table = tables + r * kKvRopeElements;
    for (int64_t h = 0; h < p.heads; ++h) {
      uint16_t* q = static_cast<uint16_t*>(p.q) + (r * p.heads + h) * kKvRowElements;
      NormHead(q, p.eps);
      RopeRow(q + kPlain, table);
      if (p.window.format == RowFormat::kFp8PerTensor) QuantiseQuery(q);
    }
    for (int64_t h = 0; h < p.index_heads; ++h) {
      uint16_t* q = static_cast<uint16_t*>(p.index_q) + (r * p.index_heads + h) * kIndexKeyElements;
      RopeRow(q + kIndexKeyElements - kKvRopeElements, step.rope.compressed + r * kKvRopeElements);
      HadamardRow(q);
      Fp4ActQuant(q, kIndexKeyElements);
    }
    const int64_t position = step.positions[r];
    const SequenceRows& sequence = step.sequences[step.sequence_of[r]];
    alignas(64) uint16_t row[kKvRowElements];
    RmsNormRow(static_cast<const uint16_t*>(p.kv) + r * kKvRowElements, p.kv_norm, kKvRowElements,
               p.eps, row, nullptr);
    RopeRow(row + kPlain, table);
    StoreKvRow(row, p.window, sequence.window_blocks[position / kWindowBlockTokens],
               position % kWindowBlockTokens);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace dsv4
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsv4 {
namespace {

HWY_EXPORT(QkvPrepareRows);

void LaunchQkvPrepare(const LaunchContext& context, const QkvPrepareParams& params) {
  const auto rows = HWY_DYNAMIC_DISPATCH(QkvPrepareRows);
  const int64_t cost = (params.heads + 1) * kKvRowElements * 4 + int64_t{params.index_heads} * 1024;
  ForRowBlocks(context, params.step->rows, BlockRows(cost),
               [&](int64_t begin, int64_t end, int) { rows(params, begin, end); });
}

}  // namespace

constinit const KernelEntry kCpuQkvPrepare =
    MakeEntry<QkvPrepareParams, &LaunchQkvPrepare, &SupportsRows<QkvPrepareParams>>(
        "cpu.qkv_prepare", Backend::kCpu, NumericsBit(Numerics::kPublished), 1);

}  // namespace dsv4
#endif  // HWY_ONCE
