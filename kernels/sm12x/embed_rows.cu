// SPDX-License-Identifier: Apache-2.0
// embed_rows: out[t, c, :] = embed[tokens[t], :].
// Contract: kernels/op/dense.h.
// Roofline: 2 D bytes read and 2 D copies bytes written a row.
// Plan: a block for each row; a thread copies 16 bytes at a time, or 2 if D is not a multiple of 8.
//   Of a block format, a thread rounds the values of a chunk (block_chunk.cuh) to bf16.
// Edge cases: padding rows have token 0.
#include "kernels/op/dense.h"
#include "kernels/sm12x/bf16.cuh"
#include "kernels/sm12x/block_chunk.cuh"
#include "kernels/sm12x/entries.h"
#include "kernels/sm12x/launch.h"
#include "kernels/sm12x/overlapped_launch.cuh"

namespace dsv4 {
namespace sm12x::embed_rows {

constexpr int kThreads = 256;

template <class Unit>
__global__ void __launch_bounds__(kThreads)
    embed_rows_kernel(const __grid_constant__ EmbedRowsParams p) {
  sm12x::BeginAfterPredecessors();
  const int64_t row = blockIdx.x;
  const int64_t units = p.embed.k * 2 / static_cast<int64_t>(sizeof(Unit));
  const Unit* from = reinterpret_cast<const Unit*>(p.embed.data) + p.TokenOf(row) * units;
  Unit* to = static_cast<Unit*>(p.out) + row * p.copies * units;
  for (int64_t i = threadIdx.x; i < units; i += kThreads) {
    const Unit value = from[i];
    for (int copy = 0; copy < p.copies; ++copy) to[copy * units + i] = value;
  }
}

template <BlockType kType>
__global__ void __launch_bounds__(kThreads)
    embed_blocks_kernel(const __grid_constant__ EmbedRowsParams p) {
  sm12x::BeginAfterPredecessors();
  const int64_t row = blockIdx.x, k = p.embed.k;
  const sm12x::RowPlanes planes = sm12x::PlanesOfRow<kType>(
      reinterpret_cast<const uint8_t*>(p.embed.data), p.embed.n, k, p.TokenOf(row));
  uint16_t* const to = static_cast<uint16_t*>(p.out) + row * p.copies * k;
  for (int chunk = threadIdx.x; chunk < k / sm12x::kChunk; chunk += kThreads) {
    float values[sm12x::kChunk];
    sm12x::LoadChunk<kType>(planes, chunk, values);
#pragma unroll
    for (int i = 0; i < sm12x::kChunk; i += 8) {
      float eight[8];
#pragma unroll
      for (int j = 0; j < 8; ++j) eight[j] = values[i + j];
      for (int copy = 0; copy < p.copies; ++copy) {
        sm12x::StoreBf16x8(eight, to + copy * k + chunk * sm12x::kChunk + i);
      }
    }
  }
}

void LaunchEmbedRows(const LaunchContext& context, const EmbedRowsParams& params) {
  if (params.embed.in_blocks()) {
    return sm12x::ForBlockType(params.embed.blocks, [&]<BlockType kType>(sm12x::TypeTag<kType>) {
      sm12x::LaunchOverlapped(CudaStreamOf(context), dim3(static_cast<unsigned>(params.rows)),
                              kThreads, 0, embed_blocks_kernel<kType>, params);
    });
  }
  const auto kernel =
      params.embed.k % 8 == 0 ? embed_rows_kernel<uint4> : embed_rows_kernel<uint16_t>;
  sm12x::LaunchOverlapped(CudaStreamOf(context), dim3(static_cast<unsigned>(params.rows)), kThreads,
                          0, kernel, params);
}

}  // namespace sm12x::embed_rows
using namespace sm12x::embed_rows;  // NOLINT: of this file alone

constinit const KernelEntry kSm12xEmbedRows =
    MakeSm12xEntry<EmbedRowsParams, &LaunchEmbedRows>("sm12x.embed_rows", 1);

}  // namespace dsv4
