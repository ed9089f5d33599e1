// SPDX-License-Identifier: Apache-2.0
// A step with sequences, block tables with shuffled block ids, rope tables and compressor states,
// for tests of the attention operators on f32 rows.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <vector>

#include "kernels/op/attention.h"
#include "kernels/op/rope.h"
#include "kernels/reference/manifest.h"
#include "tests/kernels/kernel_launch.h"
#include "tests/kernels/random_weights.h"

namespace dsv4::test {

// A row of a step: position `position` of the sequence with number `sequence`.
struct StepRow {
  uint64_t sequence;
  int64_t position;
};

class TestStep {
 public:
  // Neighbouring rows of one sequence must be consecutive positions. `block_seed` shuffles the
  // block ids.
  TestStep(std::vector<StepRow> rows, int64_t max_position, uint64_t block_seed)
      : rows_(std::move(rows)) {
    for (const StepRow& row : rows_) positions_.push_back(row.position);
    for (size_t t = 0; t < rows_.size(); ++t) {
      if (t == 0 || rows_[t].sequence != rows_[t - 1].sequence) {
        sequences_.push_back(
            {.first_row = static_cast<int32_t>(t), .first_position = positions_[t]});
      }
      ++sequences_.back().rows;
      sequence_of_.push_back(static_cast<int32_t>(sequences_.size()) - 1);
    }
    const int64_t window_blocks = max_position / kWindowBlockTokens + 1;
    const int64_t compressed_kv_blocks = max_position / kCompressedKvBlockTokens + 1;
    const auto count = static_cast<int64_t>(sequences_.size());
    window_ids_ = ShuffledIds(count * window_blocks, block_seed);
    compressed_ids_ = ShuffledIds(count * compressed_kv_blocks, block_seed + 1);
    for (int64_t i = 0; i < count; ++i) {
      sequences_[static_cast<size_t>(i)].window_blocks = window_ids_.data() + i * window_blocks;
      sequences_[static_cast<size_t>(i)].compressed_kv_blocks =
          compressed_ids_.data() + i * compressed_kv_blocks;
    }
    FillRope();
    step_.rows = static_cast<int32_t>(rows_.size());
    step_.sequence_count = static_cast<int32_t>(count);
    step_.sequences = sequences_.data();
    step_.sequence_of = sequence_of_.data();
    step_.positions = positions_.data();
    step_.max_position = max_position;
  }
  TestStep(const TestStep&) = delete;
  TestStep& operator=(const TestStep&) = delete;

  const StepRows& rows() const { return step_; }
  std::vector<SequenceRows>& sequences() { return sequences_; }
  // Which sequence (its number, not its place in the step) row t belongs to.
  uint64_t number_of(int64_t t) const { return rows_[static_cast<size_t>(t)].sequence; }

  // Pools of f32 rows; the memory is NaN where nothing was written, and a gap lies between
  // blocks, so that the block stride is not the size of the rows.
  RowPool MakeWindowPool() {
    return MakePool(window_ids_.size(), kWindowBlockTokens, kKvRowElements);
  }
  RowPool MakeCompressedPool(int64_t ratio, int64_t elements) {
    return MakePool(compressed_ids_.size(), kCompressedKvBlockTokens / ratio, elements);
  }
  float* WindowRow(const RowPool& pool, int64_t t, int64_t position) const {
    const SequenceRows& sequence = SequenceOf(t);
    return reinterpret_cast<float*>(pool.Row(sequence.window_blocks[position / kWindowBlockTokens],
                                             position % kWindowBlockTokens));
  }
  float* CompressedRow(const RowPool& pool, int64_t t, int64_t compressed_block,
                       int64_t ratio) const {
    const int64_t per_block = kCompressedKvBlockTokens / ratio;
    return reinterpret_cast<float*>(
        pool.Row(SequenceOf(t).compressed_kv_blocks[compressed_block / per_block],
                 compressed_block % per_block));
  }

  // Content of rows that every query of the step may see, a function of sequence number, position
  // or compressed block, and `seed`.
  void FillWindow(const RowPool& pool, uint64_t seed) const {
    for (int64_t t = 0; t < step_.rows; ++t) {
      const int64_t position = positions_[static_cast<size_t>(t)];
      for (int64_t p = std::max<int64_t>(0, position - 127); p <= position; ++p) {
        FillRow(WindowRow(pool, t, p), kKvRowElements, seed, number_of(t), p);
      }
    }
  }
  void FillCompressedRows(const RowPool& pool, int64_t ratio, int64_t elements,
                          uint64_t seed) const {
    for (int64_t t = 0; t < step_.rows; ++t) {
      const int64_t visible = VisibleCompressedBlocks(positions_[static_cast<size_t>(t)], ratio);
      for (int64_t g = 0; g < visible; ++g) {
        FillRow(CompressedRow(pool, t, g, ratio), elements, seed, number_of(t), g);
      }
    }
  }

 private:
  static std::vector<int32_t> ShuffledIds(int64_t count, uint64_t seed) {
    std::vector<int32_t> ids(static_cast<size_t>(count));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
    std::sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
      return RandomValue(seed, static_cast<uint64_t>(a)) <
             RandomValue(seed, static_cast<uint64_t>(b));
    });
    return ids;
  }

  static void FillRow(float* row, int64_t elements, uint64_t seed, uint64_t sequence,
                      int64_t index) {
    for (int64_t d = 0; d < elements; ++d) {
      row[d] = RandomValue(seed + 1000 * sequence, static_cast<uint64_t>(index * elements + d));
    }
  }

  const SequenceRows& SequenceOf(int64_t t) const {
    return sequences_[static_cast<size_t>(sequence_of_[static_cast<size_t>(t)])];
  }

  RowPool MakePool(size_t blocks, int64_t rows_per_block, int64_t elements) {
    constexpr int64_t kGap = 32;
    const int64_t stride = rows_per_block * elements + kGap;
    pools_.emplace_back(blocks * static_cast<size_t>(stride), NAN);
    RowPool pool = RowPool::Of(reinterpret_cast<std::byte*>(pools_.back().data()), RowFormat::kF32,
                               elements, rows_per_block);
    pool.block_stride_bytes = stride * 4;
    return pool;
  }

  void FillRope() {
    for (std::vector<float>& table : rope_) table.resize(rows_.size() * 64);
    step_.rope = {rope_[0].data(), rope_[1].data(), rope_[2].data(), rope_[3].data()};
    RopeTableParams params;
    params.rows = static_cast<int32_t>(rows_.size());
    params.positions = positions_.data();
    FillRopeFrequencies(10000, 0, 0, 32, 1, params.frequencies.window);
    FillRopeFrequencies(160000, 16, 1024, 32, 1, params.frequencies.compressed);
    params.out = step_.rope;
    LaunchKernel(ReferenceManifest(), params, {});
  }

  std::vector<StepRow> rows_;
  std::vector<int64_t> positions_;
  std::vector<int32_t> sequence_of_, window_ids_, compressed_ids_;
  std::vector<SequenceRows> sequences_;
  std::vector<float> rope_[4];
  std::deque<std::vector<float>> pools_;
  StepRows step_;
};

}  // namespace dsv4::test
