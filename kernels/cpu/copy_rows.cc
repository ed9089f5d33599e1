// SPDX-License-Identifier: Apache-2.0
// copy_rows: moves bytes.
#include <cstring>

#include "kernels/cpu/entries.h"
#include "kernels/cpu/row_blocks.h"
#include "kernels/op/dense.h"

namespace dsv4 {
namespace {

void LaunchCopyRows(const LaunchContext& context, const CopyRowsParams& p) {
  ForRowBlocks(context, p.rows, BlockRows(p.row_bytes), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      std::memcpy(p.to[r], p.from[r], static_cast<size_t>(p.row_bytes));
    }
  });
}

}  // namespace

constinit const KernelEntry kCpuCopyRows = MakeEntry<CopyRowsParams, &LaunchCopyRows>(
    "cpu.copy_rows", Backend::kCpu, NumericsBit(Numerics::kPublished), 1);

}  // namespace dsv4
