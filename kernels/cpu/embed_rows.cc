// SPDX-License-Identifier: Apache-2.0
// embed_rows: copies embedding rows into the residual streams.
#include <cstring>

#include "kernels/cpu/entries.h"
#include "kernels/cpu/row_blocks.h"
#include "kernels/op/dense.h"

namespace dsv4 {
namespace {

void LaunchEmbedRows(const LaunchContext& context, const EmbedRowsParams& p) {
  const int64_t dim = p.embed.k;
  auto* out = static_cast<uint16_t*>(p.out);
  ForRowBlocks(context, p.rows, BlockRows(dim * p.copies * 2),
               [&](int64_t begin, int64_t end, int) {
                 for (int64_t r = begin; r < end; ++r) {
                   const uint16_t* row = p.embed.data + p.TokenOf(r) * dim;
                   for (int64_t c = 0; c < p.copies; ++c) {
                     std::memcpy(out + (r * p.copies + c) * dim, row, static_cast<size_t>(dim) * 2);
                   }
                 }
               });
}

}  // namespace

constinit const KernelEntry kCpuEmbedRows = MakeEntry<EmbedRowsParams, &LaunchEmbedRows>(
    "cpu.embed_rows", Backend::kCpu, NumericsBit(Numerics::kPublished), 1);

}  // namespace dsv4
