// SPDX-License-Identifier: Apache-2.0
// Steps for the cases of the attention operators: the same rows for the reference and for the
// tested backend. Rows of the cache are in the same bytes for both. Block ids are shuffled and may
// begin anywhere, and steps may end in padding.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "kernels/op/attention.h"
#include "kernels/op/cache_rows.h"
#include "kernels/op/rope.h"
#include "tests/kernels/operator_memory.h"

namespace dsv4::test {

// Rows [first, first + rows) of one sequence in a step.
struct Piece {
  int sequence;
  int64_t first;
  int32_t rows;
};

// How a step lies in memory and is computed: none of it changes a result.
struct Layout {
  uint64_t seed = 1;
  int threads = 1;
  int32_t first_block = 0;
  int64_t gap_bytes = 64;  // behind each block of a pool
  int32_t padding_rows = 0, padding_sequences = 0;
  int64_t max_position = 4096;
  int32_t blocks = 160;
};

// Of which nothing may show.
inline const Layout kPlain{};
inline const Layout kPadded{.seed = 2, .threads = 2, .padding_rows = 3, .padding_sequences = 2};
// Blocks that lie beyond 2^31 bytes from block 0.
inline const Layout kFar{
    .seed = 3, .threads = 3, .first_block = 2200, .gap_bytes = int64_t{1} << 20, .blocks = 100};

// A step over pieces of distinct sequences, with its block tables and RoPE tables.
class Step {
 public:
  Step(On on, const std::vector<Piece>& pieces, const Layout& layout)
      : on_(on), layout_(layout), pieces_(pieces) {
    std::mt19937_64 random(layout.seed);
    std::vector<int32_t> ids(static_cast<size_t>(layout.blocks));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = layout.first_block + static_cast<int32_t>(i);
    std::shuffle(ids.begin(), ids.end(), random);
    size_t next_window = 0, next_compressed = 0;
    for (const Piece& piece : pieces) {
      SequenceRows s;
      s.first_row = real_rows_;
      s.rows = piece.rows;
      s.first_position = piece.first;
      const int64_t end = piece.first + piece.rows;
      std::vector<int32_t>& window = tables_.emplace_back();
      // Blocks before the first row's window are gone, as after a long session.
      for (int64_t p = 0; p < end; p += kWindowBlockTokens) {
        const bool seen = p + kWindowBlockTokens + kWindowTokens > piece.first;
        window.push_back(seen ? ids.at(next_window++) : kNoBlock);
      }
      std::vector<int32_t>& compressed_blocks = tables_.emplace_back();
      for (int64_t p = 0; p < end; p += kCompressedKvBlockTokens) {
        compressed_blocks.push_back(ids.at(next_compressed++));
      }
      s.window_blocks = window.data();
      s.compressed_kv_blocks = compressed_blocks.data();
      for (int32_t r = 0; r < piece.rows; ++r, ++real_rows_) {
        sequence_of_.push_back(static_cast<int32_t>(sequences_.size()));
        positions_.push_back(piece.first + r);
      }
      sequences_.push_back(s);
    }
    if (Pads()) {
      sequence_of_.resize(sequence_of_.size() + static_cast<size_t>(layout.padding_rows), -1);
      positions_.resize(sequence_of_.size(), 0);
    }
  }
  Step(const Step&) = delete;

  On on() const { return on_; }
  const Layout& layout() const { return layout_; }
  const std::vector<Piece>& pieces() const { return pieces_; }
  int32_t real_rows() const { return real_rows_; }
  int32_t rows() const { return static_cast<int32_t>(positions_.size()); }
  int sequence(int64_t row) const {
    return pieces_[static_cast<size_t>(sequence_of_[static_cast<size_t>(row)])].sequence;
  }
  int64_t position(int64_t row) const { return positions_[static_cast<size_t>(row)]; }
  // Of piece i, with host pointers. Its window_begin and its states may be set before Rows().
  SequenceRows& host(size_t i) { return sequences_[i]; }

  // The step in the side's memory; made once.
  const StepRows* Rows() {
    if (Pads()) {
      SequenceRows none;
      none.first_row = real_rows_;
      sequences_.resize(sequences_.size() + static_cast<size_t>(layout_.padding_sequences), none);
    }
    std::vector<SequenceRows> sequences = sequences_;
    for (size_t i = 0; i < pieces_.size(); ++i) {
      SequenceRows& s = sequences[i];
      s.window_blocks = ints_.emplace_back(on_, tables_[2 * i]).data();
      s.compressed_kv_blocks = ints_.emplace_back(on_, tables_[2 * i + 1]).data();
      s.state_writes =
          writes_
              .emplace_back(on_, std::vector<StateWrite>(s.state_writes,
                                                         s.state_writes + s.state_write_count))
              .data();
    }
    const std::vector<float>* const rope = MakeRope();
    float** const tables[] = {&step_.rope.window, &step_.rope.compressed, &step_.rope.ratio4,
                              &step_.rope.ratio128};
    for (int i = 0; i < 4; ++i) *tables[i] = floats_.emplace_back(on_, rope[i]).data();
    step_.rows = rows();
    step_.sequence_count = static_cast<int32_t>(sequences.size());
    step_.sequences = in_memory_.emplace_back(on_, sequences).data();
    step_.host_sequences = sequences_.data();
    step_.sequence_of = ints_.emplace_back(on_, sequence_of_).data();
    step_.positions = longs_.emplace_back(on_, positions_).data();
    step_.max_position = layout_.max_position;
    return &step_;
  }

 private:
  bool Pads() const { return on_ == On::kTested && !Tested().host_memory; }

  const std::vector<float>* MakeRope() {
    RopeTableParams params;
    params.rows = rows();
    params.positions = positions_.data();
    for (std::vector<float>& table : rope_) table.resize(positions_.size() * 64, 0.0f);
    FillRopeFrequencies(10000, 0, 0, 0, 0, params.frequencies.window);
    FillRopeFrequencies(160000, 16, 1024, 32, 1, params.frequencies.compressed);
    params.out = {rope_[0].data(), rope_[1].data(), rope_[2].data(), rope_[3].data()};
    Launch(On::kReference, params);
    return rope_;
  }

  const On on_;
  const Layout layout_;
  const std::vector<Piece> pieces_;
  int32_t real_rows_ = 0;
  std::deque<std::vector<int32_t>> tables_;
  std::vector<SequenceRows> sequences_;
  std::vector<int32_t> sequence_of_;
  std::vector<int64_t> positions_;
  std::vector<float> rope_[4];
  StepRows step_;
  std::deque<Array<int32_t>> ints_;
  std::deque<Array<int64_t>> longs_;
  std::deque<Array<float>> floats_;
  std::deque<Array<SequenceRows>> in_memory_;
  std::deque<Array<StateWrite>> writes_;
};

// A pool of rows in host memory, with a copy in the tested backend's where the step is there.
// Blocks have the ids of the step's layout, a poisoned gap after each.
class Pool {
 public:
  Pool(const Step& step, int64_t slots, int64_t dim, RowFormat format)
      : dim_(dim), first_(step.layout().first_block) {
    pool_ = RowPool::Of(nullptr, format, dim, slots);
    pool_.block_stride_bytes += step.layout().gap_bytes;
    memory_.assign(static_cast<size_t>(step.layout().blocks * pool_.block_stride_bytes), kPoison);
    pool_.base = Base(memory_.data());
  }
  const RowPool& host() const { return pool_; }
  // Row i of a sequence whose blocks are `table` gets numbers that went through the quantiser.
  void Fill(const int32_t* table, uint64_t kind, int sequence, int64_t begin, int64_t end) {
    std::vector<float> row(static_cast<size_t>(dim_));
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t e = 0; e < dim_; ++e) {
        row[static_cast<size_t>(e)] = Value(kind, sequence, i, e);
      }
      StoreRow(pool_, Block(table, i), Slot(i), row.data());
    }
  }
  // For the kernel, in its memory.
  RowPool For(const Step& step) {
    RowPool pool = pool_;
    copy_.emplace_back(step.on(), memory_);
    pool.base = Base(copy_.back().data());
    return pool;
  }
  // Back from the kernel.
  void Download() {
    memory_ = copy_.back().Get();
    pool_.base = Base(memory_.data());
  }
  void Read(const int32_t* table, int64_t i, std::vector<float>& out) const {
    out.resize(out.size() + static_cast<size_t>(dim_));
    LoadRow(pool_, Block(table, i), Slot(i), out.data() + out.size() - dim_);
  }
  // Poisons a row again; in the end a pool whose written rows were all erased is all poison.
  void Erase(const int32_t* table, int64_t i) {
    std::memset(pool_.Row(Block(table, i), Slot(i)), kPoison, static_cast<size_t>(pool_.row_bytes));
    std::memset(pool_.Scales(Block(table, i), Slot(i)), kPoison,
                static_cast<size_t>(RowScaleBytes(pool_.format)));
  }
  bool AllPoison() const {
    return std::all_of(memory_.begin(), memory_.end(),
                       [](unsigned char b) { return b == kPoison; });
  }

 private:
  static constexpr unsigned char kPoison = Array<int>::kPoison;
  // Where block 0 would be.
  std::byte* Base(unsigned char* first) const {
    return reinterpret_cast<std::byte*>(reinterpret_cast<uintptr_t>(first) -
                                        static_cast<uintptr_t>(first_ * pool_.block_stride_bytes));
  }
  int32_t Block(const int32_t* table, int64_t i) const { return table[i / pool_.rows_per_block]; }
  int64_t Slot(int64_t i) const { return i % pool_.rows_per_block; }

  const int64_t dim_, first_;
  std::vector<unsigned char> memory_;
  RowPool pool_;
  std::deque<Array<unsigned char>> copy_;
};

// Numbers [rows of the step, n] by Value; `padding` in padding rows.
inline std::vector<float> StepValues(const Step& step, uint64_t kind, int64_t n,
                                     float padding = NAN) {
  std::vector<float> values(static_cast<size_t>(step.rows() * n), padding);
  for (int64_t r = 0; r < step.real_rows(); ++r) {
    for (int64_t i = 0; i < n; ++i) {
      values[static_cast<size_t>(r * n + i)] = Value(kind, step.sequence(r), step.position(r), i);
    }
  }
  return values;
}

// Appends a [rows of the step, n] tensor to the rows of its sequences and positions.
template <class T>
void AddStepRows(const Step& step, const std::vector<T>& values, int64_t n, Rows* out) {
  for (int64_t r = 0; r < step.real_rows(); ++r) {
    std::vector<float>& row = (*out)[{step.sequence(r), step.position(r)}];
    row.insert(row.end(), values.begin() + r * n, values.begin() + (r + 1) * n);
  }
}

inline constexpr RowFormat kFp8 = RowFormat::kFp8PerTensor;

// The most that a stored row or a query may be off by, of its largest element: a step of e4m3 under
// a scale that fits the run, or under one for all. Index queries and keys are e2m1.
inline Distance StepOf(RowFormat format) { return {.of_largest = format == kFp8 ? 0.125 : 0.07}; }
inline constexpr Distance kIndexStep{.of_largest = 0.5};

}  // namespace dsv4::test
