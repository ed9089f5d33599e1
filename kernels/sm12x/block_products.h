// SPDX-License-Identifier: Apache-2.0
// Products of rows with weights in block formats: what the linears, output_groups, moe_gate and
// expert_ffn launch for such weights.
//
// - Quantised formats: a row is rounded to int8 (lib/tensor/int8_run.h). The products of a chunk of
//   32 elements, or of its half where the halves have their own scales, are added exactly and
//   multiplied by the product of both scales.
// - F32, F16 and BF16: the row stays bf16, each product is one FMA.
// - Up to 16 rows, and up to 32 of weights with few rows, take block_products.cuh, eight at a time.
//   More rows of quantised formats, rounded first by a launch of their own, take block_gemm.cuh, of
//   others block_plain_gemm.cuh.
// - Chunk c of each segment of 256 elements is added to sum c, of eight, by FMA in ascending order
//   of K; a minimum is added behind its products. Then (s0 + s4 + (s2 + s6)) + ..: the tree of
//   Butterfly in block_products.cuh. No number of rows changes the order.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/op/moe.h"
#include "kernels/registry/kernel_entry.h"
#include "kernels/sm12x/expert_rows.cuh"
#include "lib/base/checked_math.h"
#include "lib/tensor/block_format.h"

namespace dsv4::sm12x {

// Weights that share the rows of a launch, all of one type.
struct BlockPart {
  const uint8_t* data = nullptr;  // packed; of experts: null
  int64_t n = 0;
  void* y = nullptr;
  int64_t width = 0;  // elements of a row of y
  bool bf16 = true;   // y: bf16, else f32
};

// Which rows multiply which weights. One of
// - rows [0, rows) of x and y, by all parts;
// - with group_rows: of a single part, group g has weight rows [g group_rows, (g + 1) group_rows),
//   and columns of x from byte g group_bytes on;
// - with `table`: rows of experts.
struct BlockJob {
  const std::byte* x = nullptr;  // bf16
  int64_t row_bytes = 0;
  int64_t k = 0;
  int32_t rows = 0;  // of experts: of the step
  int32_t part_count = 0;
  std::array<BlockPart, 5> parts{};
  int64_t group_rows = 0, group_bytes = 0;

  const ExpertWeights* const* table = nullptr;
  RowGroups groups{};  // of two kinds: up to kBlockRows rows, and more
  std::array<int64_t, 2> most_groups{};
  // The matrix of part 0; part 1 is w3.
  ExpertMatrix ExpertWeights::*matrix = &ExpertWeights::w1;
  int32_t row_divisor = 1;  // a pair has row pair / row_divisor of x, and row `pair` of y

  // For LaunchRounding: x as records.
  const std::byte* rounded = nullptr;
  int64_t rounded_row_bytes = 0;
};

// The most rows without MMAs, and the most of a larger group of an expert.
inline constexpr int kBlockRows = 8, kBlockGroupRows = 64;

// A record of rounded_rows.cuh.
inline constexpr int kRoundedBytes = 48;
// The workspace of LaunchRounding.
constexpr int64_t RoundedBytes(int64_t rows, int64_t columns) {
  return rows <= kBlockRows ? 0 : rows * (columns / 32) * kRoundedBytes;
}
// Enqueues the rounding of `rows` rows of job->x, of `columns` elements, for the job's products
// with quantised weights. Up to kBlockRows rows are rounded by the products' own launches.
void LaunchRounding(const LaunchContext& context, int64_t rows, int64_t columns, std::byte* to,
                    BlockJob* job);

// Enqueues the products. REQUIRES: k is a multiple of 128 and of the type's elements.
void LaunchBlocks(const LaunchContext& context, BlockType type, const BlockJob& job);
// Enqueues parts of any types, those of one type in one launch. `type_of(i)`: of job.parts[i];
// kNone: leaves it out.
template <class TypeOf>
void LaunchBlockParts(const LaunchContext& context, const BlockJob& job, TypeOf&& type_of) {
  std::array<bool, 5> done{};
  for (int i = 0; i < job.part_count; ++i) {
    const BlockType type = type_of(i);
    if (type == BlockType::kNone || done[static_cast<size_t>(i)]) continue;
    BlockJob same = job;
    same.part_count = 0;
    for (int j = i; j < job.part_count; ++j) {
      if (type_of(j) != type) continue;
      done[static_cast<size_t>(j)] = true;
      same.parts[static_cast<size_t>(same.part_count++)] = job.parts[static_cast<size_t>(j)];
    }
    LaunchBlocks(context, type, same);
  }
}
// LaunchBlocks for one type.
template <BlockType kType>
void LaunchBlocksOf(const LaunchContext& context, const BlockJob& job);

}  // namespace dsv4::sm12x
