// SPDX-License-Identifier: Apache-2.0
// Steps for the tests of the cpu backend's attention operators. Every number is a function of
// (kind, sequence, position or compressed block, element), so that the same rows can be run alone,
// in chunks and in batches, in bf16 for the cpu backend and in f32 for the reference. Blocks get
// shuffled ids, and everything that a kernel must not write is poisoned and checked.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "hwy/highway.h"
#include "kernels/cpu/attention_dot.h"
#include "kernels/cpu/dot.h"
#include "kernels/cpu/entries.h"
#include "kernels/op/attention.h"
#include "kernels/op/rope.h"
#include "kernels/reference/cache_rows.h"
#include "kernels/reference/manifest.h"
#include "tests/kernels/kernel_launch.h"
#include "tests/support/worst_element.h"

namespace dsv4::test {

inline uint64_t Hash(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// A bf16 number, roughly normal with deviation 1.
inline float Value(uint64_t kind, int64_t sequence, int64_t at, int64_t element) {
  uint64_t h = Hash(kind);
  h = Hash(h ^ static_cast<uint64_t>(sequence));
  h = Hash(h ^ static_cast<uint64_t>(at));
  h = Hash(h ^ static_cast<uint64_t>(element));
  double sum = 0;
  for (int i = 0; i < 4; ++i) sum += static_cast<double>(h >> (16 * i) & 0xffff) / 65536 - 0.5;
  return RoundToBf16(static_cast<float>(sum * 1.7));
}

template <class Act>
Act ToAct(float v) {
  if constexpr (sizeof(Act) == 2) {
    return FloatToBf16(v);
  } else {
    return v;
  }
}
inline float FromAct(uint16_t v) { return Bf16ToFloat(v); }
inline float FromAct(float v) { return v; }

// Memory aligned as activations are, behind and before which a write is noticed.
template <class T>
class Guarded {
 public:
  explicit Guarded(int64_t count)
      : count_(count), bytes_(static_cast<size_t>(count) * sizeof(T) + 256) {
    bytes_.assign(bytes_.size(), kPoison);
    base_ = bytes_.data() + 64 + (64 - reinterpret_cast<uintptr_t>(bytes_.data()) % 64) % 64;
  }
  T* data() { return reinterpret_cast<T*>(base_); }
  T& operator[](int64_t i) { return data()[i]; }
  int64_t size() const { return count_; }
  // Whether the memory around the values is as it was.
  bool Intact() const {
    const auto same = [](unsigned char b) { return b == kPoison; };
    const unsigned char* end = base_ + static_cast<size_t>(count_) * sizeof(T);
    return std::all_of(bytes_.data(), static_cast<const unsigned char*>(base_), same) &&
           std::all_of(end, bytes_.data() + bytes_.size(), same);
  }
  static constexpr unsigned char kPoison = 0xfd;

 private:
  int64_t count_;
  std::vector<unsigned char> bytes_;
  unsigned char* base_;
};

// Rows [first, first + rows) of one sequence in a step.
struct Piece {
  int sequence;
  int64_t first;
  int32_t rows;
};

// What a run gave: the row of every (sequence, position or compressed block), as stored.
using Rows = std::map<std::pair<int, int64_t>, std::vector<float>>;

inline constexpr int64_t kTestMaxPosition = 1024;

// A step over pieces of distinct sequences, with its block tables, rope tables and states.
class TestStep {
 public:
  TestStep(const std::vector<Piece>& pieces, uint64_t seed) : pieces_(pieces) {
    std::mt19937_64 random(seed);
    std::vector<int32_t> ids(64);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
    std::shuffle(ids.begin(), ids.end(), random);
    size_t next = 0;
    int32_t row = 0;
    for (const Piece& piece : pieces) {
      SequenceRows s;
      s.first_row = row;
      s.rows = piece.rows;
      s.first_position = piece.first;
      auto& window = tables_.emplace_back();
      auto& compressed_blocks = tables_.emplace_back();
      for (int64_t p = 0; p < piece.first + piece.rows; p += 64) window.push_back(ids.at(next++));
      for (int64_t p = 0; p < piece.first + piece.rows; p += 256)
        compressed_blocks.push_back(ids.at(next++));
      s.window_blocks = window.data();
      s.compressed_kv_blocks = compressed_blocks.data();
      for (int32_t r = 0; r < piece.rows; ++r, ++row) {
        sequence_of_.push_back(static_cast<int32_t>(sequences_.size()));
        positions_.push_back(piece.first + r);
      }
      sequences_.push_back(s);
    }
    step_.rows = row;
    step_.sequence_count = static_cast<int32_t>(pieces.size());
    step_.sequences = sequences_.data();
    step_.sequence_of = sequence_of_.data();
    step_.positions = positions_.data();
    step_.max_position = kTestMaxPosition;
    rope_.resize(static_cast<size_t>(row) * 64 * 4, 0.0f);
    for (int i = 0; i < 4; ++i) RopeOf(i) = rope_.data() + int64_t{i} * row * 64;
    RopeTableParams params;
    params.rows = row;
    params.positions = positions_.data();
    FillRopeFrequencies(10000, 0, 0, 0, 0, params.frequencies.window);
    FillRopeFrequencies(160000, 16, 1024, 32, 1, params.frequencies.compressed);
    params.out = step_.rope;
    LaunchKernel(ReferenceManifest(), params, {.numerics = Numerics::kPublished});
  }
  TestStep(const TestStep&) = delete;

  StepRows step_;
  const std::vector<Piece> pieces_;
  std::vector<SequenceRows> sequences_;
  std::vector<int64_t> positions_;

  int sequence(int64_t row) const {
    return pieces_[static_cast<size_t>(sequence_of_[row])].sequence;
  }

 private:
  float*& RopeOf(int i) {
    RopeTables& r = step_.rope;
    return i == 0 ? r.window : i == 1 ? r.compressed : i == 2 ? r.ratio4 : r.ratio128;
  }
  std::deque<std::vector<int32_t>> tables_;
  std::vector<int32_t> sequence_of_;
  std::vector<float> rope_;
};

// A pool of 64 blocks of `slots` rows of `dim` elements, a poisoned gap after each block. Rows are
// written and read as the reference stores them, which other tests pin.
class TestPool {
 public:
  TestPool(int64_t slots, int64_t dim, RowFormat format)
      : dim_(dim), memory_(64 * (BlockBytes(format, dim, slots) + kGapBytes)) {
    pool_ = RowPool::Of(reinterpret_cast<std::byte*>(memory_.data()), format, dim, slots);
    pool_.block_stride_bytes += kGapBytes;
  }
  const RowPool& pool() const { return pool_; }
  // Row i of a sequence whose blocks are `table` gets numbers that went through the quantiser: the
  // same ones in every format.
  void Fill(const int32_t* table, uint64_t kind, int sequence, int64_t begin, int64_t end) {
    LaunchContext context;
    for (int64_t i = begin; i < end; ++i) {
      std::vector<float> row;
      for (int64_t e = 0; e < dim_; ++e) row.push_back(Value(kind, sequence, i, e));
      reference::StoreRow(
          context, dim_ == kIndexKeyElements ? Point::kQuantIndexKey : Point::kQuantWindowRow,
          pool_, Block(table, i), Slot(i), row.data());
    }
  }
  void Read(const int32_t* table, int64_t i, std::vector<float>& out) const {
    out.resize(out.size() + static_cast<size_t>(dim_));
    reference::LoadRow(pool_, Block(table, i), Slot(i), out.data() + out.size() - dim_);
  }
  // Poisons a row again; in the end a pool whose written rows were all erased is all poison.
  void Erase(const int32_t* table, int64_t i) {
    std::memset(pool_.Row(Block(table, i), Slot(i)), kPoison, static_cast<size_t>(pool_.row_bytes));
    std::memset(pool_.Scales(Block(table, i), Slot(i)), kPoison,
                static_cast<size_t>(RowScaleBytes(pool_.format)));
  }
  bool AllPoison() {
    const unsigned char *begin = memory_.data(), *end = begin + memory_.size();
    return memory_.Intact() &&
           std::all_of(begin, end, [](unsigned char b) { return b == kPoison; });
  }

 private:
  static constexpr int64_t kGapBytes = 64;
  static constexpr unsigned char kPoison = Guarded<unsigned char>::kPoison;
  int32_t Block(const int32_t* table, int64_t i) const { return table[i / pool_.rows_per_block]; }
  int64_t Slot(int64_t i) const { return i % pool_.rows_per_block; }

  int64_t dim_;
  Guarded<unsigned char> memory_;
  RowPool pool_;
};

// The reference's rows where activations are f32; the cpu backend's default where they are bf16.
template <class Act>
inline constexpr RowFormat kDefaultRows = sizeof(Act) == 4 ? RowFormat::kF32 : RowFormat::kPacked;

// A [T, n] tensor of a step filled by Value, or poisoned (kind 0).
template <class Act>
Guarded<Act> StepTensor(const TestStep& step, uint64_t kind, int64_t n) {
  Guarded<Act> out(step.step_.rows * n);
  if (kind == 0) return out;
  for (int64_t r = 0; r < step.step_.rows; ++r) {
    for (int64_t i = 0; i < n; ++i) {
      out[r * n + i] =
          ToAct<Act>(Value(kind, step.sequence(r), step.positions_[static_cast<size_t>(r)], i));
    }
  }
  return out;
}

template <class Act>
void ReadTensor(const TestStep& step, Guarded<Act>& tensor, int64_t n, Rows& out) {
  REQUIRE(tensor.Intact());
  for (int64_t r = 0; r < step.step_.rows; ++r) {
    std::vector<float>& row = out[{step.sequence(r), step.positions_[static_cast<size_t>(r)]}];
    for (int64_t i = 0; i < n; ++i) row.push_back(FromAct(tensor[r * n + i]));
  }
}

template <class Act, class Params>
void Launch(const Params& params, int threads = 1) {
  if constexpr (sizeof(Act) == 4) {
    LaunchKernel(ReferenceManifest(), params,
                 {.numerics = Numerics::kPublished, .threads = threads});
  } else {
    static const std::map<Op, const KernelEntry*> entries = {
        {Op::kRopeTable, &kCpuRopeTable},
        {Op::kEmbedRows, &kCpuEmbedRows},
        {Op::kCopyRows, &kCpuCopyRows},
        {Op::kHcPre, &kCpuHcPre},
        {Op::kHcPost, &kCpuHcPost},
        {Op::kHcHead, &kCpuHcHead},
        {Op::kMtpCombine, &kCpuMtpCombine},
        {Op::kRmsNorm, &kCpuRmsNorm},
        {Op::kQkvPrepare, &kCpuQkvPrepare},
        {Op::kCompressKv, &kCpuCompressKv},
        {Op::kIndexScoreTopk, &kCpuIndexScoreTopk},
        {Op::kSparseAttention, &kCpuSparseAttention}};
    LaunchKernel(Manifest(entries.at(Params::kOp), 1), params,
                 {.numerics = Numerics::kPublished, .threads = threads});
  }
}

// Runs `test` once for every instruction set that was compiled and that this machine has, without
// and, where there are any, with bf16 dot instructions.
inline void ForEachTarget(const std::function<void()>& test) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    INFO("target " << hwy::TargetName(target));
    AllowDotExtensions(DotExtension::kNone);
    test();
    AllowDotExtensions(DotExtension::kAmx);
    INFO("bf16 dots");
    if (ActiveAttentionDot() != nullptr) test();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

// Bit for bit.
inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return DifferentBits(a, b).empty();
}
inline void RequireSame(const Rows& got, const Rows& want) {
  REQUIRE(got.size() == want.size());
  for (const auto& [key, row] : want) {
    INFO("sequence " << key.first << ", position or compressed block " << key.second);
    REQUIRE(got.count(key) == 1);
    REQUIRE(DifferentBits(got.at(key), row) == "");
  }
}

// Sums in another order move a value across a rounding border now and then; everything else must be
// equal: at least `equal` of all values to the bit, and each within `tolerance` of its row's
// largest.
inline void RequireClose(const Rows& got, const Rows& want, double equal, double tolerance) {
  REQUIRE(got.size() == want.size());
  int64_t count = 0, same = 0;
  for (const auto& [key, row] : want) {
    INFO("sequence " << key.first << ", position or compressed block " << key.second);
    REQUIRE(got.count(key) == 1);
    const std::vector<float>& other = got.at(key);
    REQUIRE(other.size() == row.size());
    float largest = 0;
    for (const float v : row) largest = std::max(largest, std::abs(v));
    for (size_t i = 0; i < row.size(); ++i) {
      ++count;
      same += std::bit_cast<uint32_t>(row[i]) == std::bit_cast<uint32_t>(other[i]);
      if (!(std::abs(row[i] - other[i]) <= tolerance * largest)) {
        INFO("element " << i << ": " << other[i] << " instead of " << row[i]);
        REQUIRE(false);
      }
    }
  }
  INFO(same << " of " << count << " values are equal");
  REQUIRE(static_cast<double>(same) >= equal * static_cast<double>(count));
}

}  // namespace dsv4::test
