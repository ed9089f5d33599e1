// SPDX-License-Identifier: Apache-2.0
// embed_rows: copies embedding rows into the residual streams; rows in block formats are rounded to
// bf16.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/entries.h"
#include "kernels/cpu/row_blocks.h"
#include "kernels/op/dense.h"
#include "lib/tensor/dtype.h"

namespace dsv4 {
namespace {

void LoadRow(const BlockWeight& w, int64_t row, uint16_t* out) {
  constexpr int64_t kPiece = 256;  // elements; a multiple of every block's
  float values[kPiece];
  for (int64_t begin = 0; begin < w.k; begin += kPiece) {
    const int64_t count = std::min(kPiece, w.k - begin);
    LoadBlocks(w.type, w.Row(row) + BlockBytes(w.type, begin), count, values);
    for (int64_t i = 0; i < count; ++i) out[begin + i] = FloatToBf16(values[i]);
  }
}

void LaunchEmbedRows(const LaunchContext& context, const EmbedRowsParams& p) {
  const int64_t dim = p.embed.k;
  auto* out = static_cast<uint16_t*>(p.out);
  ForRowBlocks(context, p.rows, BlockRows(dim * p.copies * 2),
               [&](int64_t begin, int64_t end, int) {
                 for (int64_t r = begin; r < end; ++r) {
                   const uint16_t* row = p.embed.data + p.TokenOf(r) * dim;
                   if (p.embed.in_blocks()) {
                     row = out + r * p.copies * dim;
                     LoadRow(p.embed.block_weight(), p.TokenOf(r), out + r * p.copies * dim);
                   }
                   for (int64_t c = p.embed.in_blocks() ? 1 : 0; c < p.copies; ++c) {
                     std::memcpy(out + (r * p.copies + c) * dim, row, static_cast<size_t>(dim) * 2);
                   }
                 }
               });
}

}  // namespace

constinit const KernelEntry kCpuEmbedRows = MakeEntry<EmbedRowsParams, &LaunchEmbedRows>(
    "cpu.embed_rows", Backend::kCpu, NumericsBit(Numerics::kPublished), 1);

}  // namespace dsv4
