// SPDX-License-Identifier: Apache-2.0
// copy_rows: to[r][0 .. row_bytes) = from[r][0 .. row_bytes).
// Contract: kernels/op/dense.h.
// Roofline: 2 row_bytes a row, bound by bandwidth.
// Plan: blocks of 256 threads share a row; a thread copies 16 bytes at a time. Rows with an
//   unaligned pointer, and the end of a row, are copied in single bytes.
// Edge cases: any alignment and length.
#include "kernels/op/dense.h"
#include "kernels/sm12x/entries.h"
#include "kernels/sm12x/launch.h"
#include "kernels/sm12x/overlapped_launch.cuh"

namespace dsv4 {
namespace sm12x::copy_rows {

constexpr int kThreads = 256;
constexpr int64_t kBlocksOfRow = 64;  // the most of a row

__global__ void __launch_bounds__(kThreads)
    copy_rows_kernel(const __grid_constant__ CopyRowsParams p) {
  sm12x::BeginAfterPredecessors();
  for (int64_t row = blockIdx.y; row < p.rows; row += gridDim.y) {
    const std::byte* from = p.from[row];
    std::byte* to = p.to[row];
    const bool aligned =
        ((reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to)) & 15) == 0;
    const int64_t vectors = aligned ? p.row_bytes / 16 : 0;
    const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    const int64_t threads = static_cast<int64_t>(gridDim.x) * kThreads;
    for (int64_t i = thread; i < vectors; i += threads) {
      reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
    }
    for (int64_t i = vectors * 16 + thread; i < p.row_bytes; i += threads) to[i] = from[i];
  }
}

void LaunchCopyRows(const LaunchContext& context, const CopyRowsParams& params) {
  constexpr int64_t kBytesOfBlock = kThreads * 16 * 4;
  const int64_t blocks = (params.row_bytes + kBytesOfBlock - 1) / kBytesOfBlock;
  const dim3 grid(static_cast<unsigned>(blocks < 1              ? 1
                                        : blocks < kBlocksOfRow ? blocks
                                                                : kBlocksOfRow),
                  static_cast<unsigned>(params.rows < 65535 ? params.rows : 65535));
  sm12x::LaunchOverlapped(CudaStreamOf(context), grid, kThreads, 0, copy_rows_kernel, params);
}

}  // namespace sm12x::copy_rows
using namespace sm12x::copy_rows;  // NOLINT: of this file alone

constinit const KernelEntry kSm12xCopyRows =
    MakeSm12xEntry<CopyRowsParams, &LaunchCopyRows>("sm12x.copy_rows", 1);

}  // namespace dsv4
