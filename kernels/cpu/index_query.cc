// SPDX-License-Identifier: Apache-2.0
// index_query: RoPE, Hadamard rotation and fp4 round trip of each index head, in place.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/index_query.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/cpu/entries.h"
#include "kernels/cpu/row_blocks.h"
#include "kernels/cpu/row_math-inl.h"
#include "kernels/op/attention.h"

HWY_BEFORE_NAMESPACE();
namespace dsv4 {
namespace HWY_NAMESPACE {

void IndexQueryRows(const IndexQueryParams& p, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const float* table = p.step->rope.compressed + r * kKvRopeElements;
    for (int64_t h = 0; h < p.heads; ++h) {
      uint16_t* q = static_cast<uint16_t*>(p.q) + (r * p.heads + h) * kIndexKeyElements;
      RopeRow(q + kIndexKeyElements - kKvRopeElements, table);
      HadamardRow(q);
      Fp4ActQuant(q, kIndexKeyElements);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace dsv4
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsv4 {
namespace {

HWY_EXPORT(IndexQueryRows);

void LaunchIndexQuery(const LaunchContext& context, const IndexQueryParams& params) {
  const auto rows = HWY_DYNAMIC_DISPATCH(IndexQueryRows);
  ForRowBlocks(context, params.step->rows, BlockRows(int64_t{params.heads} * 1024),
               [&](int64_t begin, int64_t end, int) { rows(params, begin, end); });
}

}  // namespace

constinit const KernelEntry kCpuIndexQuery = MakeEntry<IndexQueryParams, &LaunchIndexQuery>(
    "cpu.index_query", Backend::kCpu, NumericsBit(Numerics::kPublished), 1);

}  // namespace dsv4
#endif  // HWY_ONCE
