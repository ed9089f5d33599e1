// SPDX-License-Identifier: Apache-2.0
// block_products of any type: block_products.h. Each type has kernels of its own, compiled in
// block_products_*.cu. And the rounding of rows for block_gemm.cuh.
#include "kernels/sm12x/block_products.h"

#include "kernels/sm12x/block_layout.h"
#include "kernels/sm12x/launch.h"
#include "kernels/sm12x/overlapped_launch.cuh"
#include "kernels/sm12x/rounded_rows.cuh"

namespace dsv4::sm12x {
namespace block_products {

constexpr int kRoundRows = 8, kRoundChunks = 32;  // of a block

// A thread has a chunk of a row; neighbours have neighbouring chunks.
__global__ void __launch_bounds__(kRoundRows* kRoundChunks)
    round_rows_kernel(const std::byte* x, int64_t row_bytes, int32_t rows, int32_t chunks,
                      std::byte* records) {
  BeginAfterPredecessors();
  const int32_t chunk = blockIdx.y * kRoundChunks + threadIdx.x % kRoundChunks;
  const int64_t row = int64_t{blockIdx.x} * kRoundRows + threadIdx.x / kRoundChunks;
  if (chunk >= chunks || row >= rows) return;
  const auto* const from =
      reinterpret_cast<const uint4*>(x + row * row_bytes + int64_t{chunk} * 64);
  const uint4 values[4] = {from[0], from[1], from[2], from[3]};
  const RoundedChunk rounded = RoundChunk(values);
  auto* const to = reinterpret_cast<uint4*>(records + (row * chunks + chunk) * kRoundedBytes);
  const uint32_t(&codes)[8] = rounded.codes;
  to[0] = make_uint4(codes[0], codes[1], codes[2], codes[3]);
  to[1] = make_uint4(codes[4], codes[5], codes[6], codes[7]);
  to[2] = make_uint4(__float_as_uint(rounded.scale), rounded.sums, 0, 0);
}

}  // namespace block_products
using namespace block_products;  // NOLINT: of this file alone

void LaunchRounding(const LaunchContext& context, int64_t rows, int64_t columns, std::byte* to,
                    BlockJob* job) {
  if (rows <= kBlockRows) return;
  const int64_t chunks = columns / 32;
  LaunchOverlapped(CudaStreamOf(context),
                   dim3(static_cast<unsigned>(CeilDiv<int64_t>(rows, kRoundRows)),
                        static_cast<unsigned>(CeilDiv<int64_t>(chunks, kRoundChunks))),
                   kRoundRows * kRoundChunks, 0, round_rows_kernel, job->x, job->row_bytes,
                   static_cast<int32_t>(rows), static_cast<int32_t>(chunks), to);
  job->rounded = to;
  job->rounded_row_bytes = chunks * kRoundedBytes;
}

void LaunchBlocks(const LaunchContext& context, BlockType type, const BlockJob& job) {
  ForBlockType(type, [&]<BlockType kType>(TypeTag<kType>) { LaunchBlocksOf<kType>(context, job); });
}

}  // namespace dsv4::sm12x
