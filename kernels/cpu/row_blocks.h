// SPDX-License-Identifier: Apache-2.0
// Splits rows over the stream's workers, for kernels that treat all rows alike.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/op/op.h"

namespace dsv4 {

// Calls f(begin, end, worker) for blocks of `block_rows` rows. A single block runs on the calling
// thread without waking a worker.
template <class F>
void ForRowBlocks(const LaunchContext& context, int64_t rows, int64_t block_rows, F&& f) {
  static_cast<CpuStream*>(context.stream)
      ->ParallelFor((rows + block_rows - 1) / block_rows, [&](int64_t unit, int worker) {
        f(unit * block_rows, std::min(rows, (unit + 1) * block_rows), worker);
      });
}

// Rows of a block that occupies a worker for a microsecond or two, if a row moves `row_bytes`.
constexpr int64_t BlockRows(int64_t row_bytes) {
  return std::clamp<int64_t>((int64_t{64} << 10) / row_bytes, 1, 64);
}

// Parts of a workspace begin at cache lines.
constexpr int64_t AlignUp(int64_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace dsv4
