// SPDX-License-Identifier: Apache-2.0
// Steps for the tests of the CUDA backend's attention operators: the same rows for the reference on
// the host, in f32, and for a kernel on the device, in bf16. Rows of the cache are in the same
// bytes for both. Block ids are shuffled and may begin anywhere, steps may end in padding, and
// whatever a kernel must not write is poisoned and compared.
#pragma once

#include <cstring>
#include <deque>
#include <memory>

#include "kernels/sm12x/entries.h"
#include "tests/kernels/cpu_step.h"
#include "tests/kernels/cuda_graph.h"

namespace dsv4::test {

enum class On { kReference, kCuda };

// How a step lies in memory: none of it changes a result.
struct Layout {
  uint64_t seed = 1;
  int32_t first_block = 0;
  int64_t gap_bytes = 64;  // behind each block of a pool
  int32_t padding_rows = 0, padding_sequences = 0;
  int64_t max_position = 4096;
  int32_t blocks = 160;
};

class CudaStep {
 public:
  CudaStep(On on, const std::vector<Piece>& pieces, const Layout& layout)
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
      for (int64_t p = 0; p < end; p += kCompressedKvBlockTokens)
        compressed_blocks.push_back(ids.at(next_compressed++));
      s.window_blocks = window.data();
      s.compressed_kv_blocks = compressed_blocks.data();
      for (int32_t r = 0; r < piece.rows; ++r, ++real_rows_) {
        sequence_of_.push_back(static_cast<int32_t>(sequences_.size()));
        positions_.push_back(piece.first + r);
      }
      sequences_.push_back(s);
    }
    if (on_ == On::kCuda) {
      for (int i = 0; i < layout.padding_rows; ++i) {
        sequence_of_.push_back(-1);
        positions_.push_back(0);
      }
    }
    MakeRope();
  }
  CudaStep(const CudaStep&) = delete;

  On on() const { return on_; }
  const Layout& layout() const { return layout_; }
  const std::vector<Piece>& pieces() const { return pieces_; }
  int32_t real_rows() const { return real_rows_; }
  int32_t rows() const { return static_cast<int32_t>(positions_.size()); }
  int sequence(int64_t row) const {
    return pieces_[static_cast<size_t>(sequence_of_[static_cast<size_t>(row)])].sequence;
  }
  int64_t position(int64_t row) const { return positions_[static_cast<size_t>(row)]; }
  // Of piece i, with host pointers. Its window_begin and, on the reference, its states may be set
  // before Rows().
  SequenceRows& host(size_t i) { return sequences_[i]; }
  // The fields that differ on the device, except tables: set before Rows().
  struct States {
    int32_t slot = kNoBlock;
    std::vector<StateWrite> state_writes;
  };
  std::vector<States>& device_states() { return device_states_; }

  // The step in the backend's form; made once.
  const StepRows* Rows() {
    step_.rows = rows();
    step_.sequence_count = static_cast<int32_t>(sequences_.size());
    step_.max_position = layout_.max_position;
    if (on_ == On::kReference) {
      step_.sequences = sequences_.data();
      step_.sequence_of = sequence_of_.data();
      step_.positions = positions_.data();
      step_.rope = {rope_[0].data(), rope_[1].data(), rope_[2].data(), rope_[3].data()};
      return &step_;
    }
    std::vector<SequenceRows> sequences = sequences_;
    for (size_t i = 0; i < sequences.size(); ++i) {
      sequences[i].window_blocks = device_ints_.emplace_back(tables_[2 * i]).data();
      sequences[i].compressed_kv_blocks = device_ints_.emplace_back(tables_[2 * i + 1]).data();
      if (i >= device_states_.size()) continue;
      const States& states = device_states_[i];
      sequences[i].state_slot = states.slot;
      sequences[i].state_writes = device_writes_.emplace_back(states.state_writes).data();
      sequences[i].state_write_count = static_cast<int32_t>(states.state_writes.size());
    }
    for (int i = 0; i < layout_.padding_sequences; ++i) {
      SequenceRows none;
      none.first_row = real_rows_;
      sequences.push_back(none);
    }
    step_.sequence_count = static_cast<int32_t>(sequences.size());
    step_.sequences = device_sequences_.emplace_back(sequences).data();
    step_.sequence_of = device_ints_.emplace_back(sequence_of_).data();
    step_.positions = device_positions_.emplace_back(positions_).data();
    float** const tables[] = {&step_.rope.window, &step_.rope.compressed, &step_.rope.ratio4,
                              &step_.rope.ratio128};
    for (int i = 0; i < 4; ++i) *tables[i] = device_floats_.emplace_back(rope_[i]).data();
    return &step_;
  }

 private:
  void MakeRope() {
    RopeTableParams params;
    params.rows = rows();
    params.positions = positions_.data();
    for (std::vector<float>& table : rope_) table.resize(positions_.size() * 64, 0.0f);
    FillRopeFrequencies(10000, 0, 0, 0, 0, params.frequencies.window);
    FillRopeFrequencies(160000, 16, 1024, 32, 1, params.frequencies.compressed);
    params.out = {rope_[0].data(), rope_[1].data(), rope_[2].data(), rope_[3].data()};
    LaunchKernel(ReferenceManifest(), params, {.numerics = Numerics::kPublished});
  }

  const On on_;
  const Layout layout_;
  const std::vector<Piece> pieces_;
  int32_t real_rows_ = 0;
  std::deque<std::vector<int32_t>> tables_;
  std::vector<SequenceRows> sequences_;
  std::vector<States> device_states_;
  std::vector<int32_t> sequence_of_;
  std::vector<int64_t> positions_;
  std::vector<float> rope_[4];
  StepRows step_;
  std::deque<DeviceCopy<int32_t>> device_ints_;
  std::deque<DeviceCopy<int64_t>> device_positions_;
  std::deque<DeviceCopy<float>> device_floats_;
  std::deque<DeviceCopy<SequenceRows>> device_sequences_;
  std::deque<DeviceCopy<StateWrite>> device_writes_;
};

// A pool of rows in host memory, with a copy on the device where the step is there. Blocks have the
// ids of the step's layout, a poisoned gap after each.
class CudaPool {
 public:
  CudaPool(const CudaStep& step, int64_t slots, int64_t dim, RowFormat format)
      : dim_(dim), first_(step.layout().first_block) {
    pool_ = RowPool::Of(nullptr, format, dim, slots);
    pool_.block_stride_bytes += step.layout().gap_bytes;
    memory_.assign(static_cast<size_t>(step.layout().blocks * pool_.block_stride_bytes),
                   kCudaPoison);
    pool_.base = Base(reinterpret_cast<std::byte*>(memory_.data()));
  }
  const RowPool& host() const { return pool_; }
  // Row i of a sequence whose blocks are `table` gets numbers that went through the quantiser.
  void Fill(const int32_t* table, uint64_t kind, int sequence, int64_t begin, int64_t end) {
    LaunchContext context;
    std::vector<float> row(static_cast<size_t>(dim_));
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t e = 0; e < dim_; ++e) {
        row[static_cast<size_t>(e)] = Value(kind, sequence, i, e);
      }
      reference::StoreRow(
          context, dim_ == kIndexKeyElements ? Point::kQuantIndexKey : Point::kQuantWindowRow,
          pool_, Block(table, i), Slot(i), row.data());
    }
  }
  // For the kernel: uploads the rows when the step is on the device.
  RowPool For(const CudaStep& step) {
    if (step.on() == On::kReference) return pool_;
    device_ = std::make_unique<DeviceCopy<unsigned char>>(memory_);
    RowPool pool = pool_;
    pool.base = Base(reinterpret_cast<std::byte*>(device_->data()));
    return pool;
  }
  // Back to the host.
  void Download() {
    if (device_ == nullptr) return;
    REQUIRE(device_->Intact());
    memory_ = device_->Download();
    pool_.base = Base(reinterpret_cast<std::byte*>(memory_.data()));
  }
  void Read(const int32_t* table, int64_t i, std::vector<float>& out) const {
    out.resize(out.size() + static_cast<size_t>(dim_));
    reference::LoadRow(pool_, Block(table, i), Slot(i), out.data() + out.size() - dim_);
  }
  // Poisons a row again; in the end a pool whose written rows were all erased is all poison.
  void Erase(const int32_t* table, int64_t i) {
    std::memset(pool_.Row(Block(table, i), Slot(i)), kCudaPoison,
                static_cast<size_t>(pool_.row_bytes));
    std::memset(pool_.Scales(Block(table, i), Slot(i)), kCudaPoison,
                static_cast<size_t>(RowScaleBytes(pool_.format)));
  }
  bool AllPoison() const {
    return std::all_of(memory_.begin(), memory_.end(),
                       [](unsigned char b) { return b == kCudaPoison; });
  }

 private:
  // Where block 0 would be.
  std::byte* Base(std::byte* first) const {
    return reinterpret_cast<std::byte*>(reinterpret_cast<uintptr_t>(first) -
                                        static_cast<uintptr_t>(first_ * pool_.block_stride_bytes));
  }
  int32_t Block(const int32_t* table, int64_t i) const { return table[i / pool_.rows_per_block]; }
  int64_t Slot(int64_t i) const { return i % pool_.rows_per_block; }

  const int64_t dim_, first_;
  std::vector<unsigned char> memory_;
  RowPool pool_;
  std::unique_ptr<DeviceCopy<unsigned char>> device_;
};

// A [T, n] activation of a step, filled by Value or poisoned (kind 0); padding rows are poison.
class CudaTensor {
 public:
  CudaTensor(const CudaStep& step, uint64_t kind, int64_t n) : step_(step), n_(n) {
    const auto count = static_cast<size_t>(step.rows() * n);
    std::vector<uint16_t> bits(count, 0xfdfd);
    for (int64_t r = 0; kind != 0 && r < step.real_rows(); ++r) {
      for (int64_t i = 0; i < n; ++i) {
        bits[static_cast<size_t>(r * n + i)] =
            FloatToBf16(Value(kind, step.sequence(r), step.position(r), i));
      }
    }
    if (step.on() == On::kCuda) {
      device_ = std::make_unique<DeviceCopy<uint16_t>>(bits);
      return;
    }
    for (const uint16_t b : bits) host_.push_back(Bf16ToFloat(b));
  }
  void* data() {
    return device_ != nullptr ? static_cast<void*>(device_->data())
                              : static_cast<void*>(host_.data());
  }
  void Read(Rows& out) {
    if (device_ != nullptr) {
      REQUIRE(device_->Intact());
      host_.clear();
      for (const uint16_t b : device_->Download()) host_.push_back(Bf16ToFloat(b));
    }
    for (int64_t r = 0; r < step_.real_rows(); ++r) {
      std::vector<float>& row = out[{step_.sequence(r), step_.position(r)}];
      row.insert(row.end(), host_.begin() + r * n_, host_.begin() + (r + 1) * n_);
    }
  }

 private:
  const CudaStep& step_;
  const int64_t n_;
  std::vector<float> host_;
  std::unique_ptr<DeviceCopy<uint16_t>> device_;
};

// An array that both backends read as it is.
template <class T>
class CudaArray {
 public:
  CudaArray(const CudaStep& step, std::vector<T> values) : values_(std::move(values)) {
    if (step.on() == On::kCuda) device_ = std::make_unique<DeviceCopy<T>>(values_);
  }
  T* data() { return device_ != nullptr ? device_->data() : values_.data(); }
  const std::vector<T>& Download() {
    if (device_ != nullptr) {
      REQUIRE(device_->Intact());
      values_ = device_->Download();
    }
    return values_;
  }

 private:
  std::vector<T> values_;
  std::unique_ptr<DeviceCopy<T>> device_;
};

template <class Params>
void LaunchStep(const CudaStep& step, const KernelEntry& entry, const Params& params) {
  if (step.on() == On::kReference) {
    LaunchKernel(ReferenceManifest(), params, {.numerics = Numerics::kPublished});
  } else {
    ReplayOnCuda(entry, params);
  }
}

}  // namespace dsv4::test
