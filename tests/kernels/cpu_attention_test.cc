// SPDX-License-Identifier: Apache-2.0
// The cpu backend's attention operators: against the reference in published numerics, in batches of
// several sequences with shuffled blocks; and the row rule, bit for bit: a row alone, in chunks, in
// a batch and on any number of threads.
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <limits>

#include "kernels/cpu/top_k.h"
#include "tests/kernels/cpu_step.h"
#include "tests/kernels/top_selection.h"

namespace dsv4::test {
namespace {

// Around every border: windows of 128, blocks of 64 and 256, compressed blocks of 4 and 128.
const std::vector<Piece> kBatch = {
    {0, 0, 1},   {1, 0, 6},    {2, 3, 1},   {3, 2, 9},   {4, 60, 8},
    {5, 126, 5}, {6, 250, 10}, {7, 383, 1}, {8, 129, 1}, {9, 120, 140},
};
const std::vector<std::vector<Piece>> kSplits = {
    // Sequence 9 in chunks: the last ones begin and end inside compressed blocks.
    {{9, 120, 7}},  {{9, 127, 1}, {5, 126, 5}}, {{9, 128, 65}},
    {{9, 193, 63}}, {{9, 256, 4}, {0, 0, 1}},
};

// Runs in order and gathers all rows.
using Run = std::function<Rows(const std::vector<Piece>&, int threads, uint64_t seed)>;

void RequireRowRule(const Run& run) {
  const Rows whole = run(kBatch, 1, 1);
  RequireSame(run(kBatch, 2, 2), whole);
  RequireSame(run(kBatch, 3, 3), whole);
  for (const std::vector<Piece>& pieces : kSplits) {
    for (const auto& [key, row] : run(pieces, 2, 4)) {
      INFO("sequence " << key.first << ", position or compressed block " << key.second);
      REQUIRE(SameBits(row, whole.at(key)));
    }
  }
}

// A row's elements: query heads, index heads, the window's row.
template <class Act>
Rows RunQkvPrepare(const std::vector<Piece>& pieces, int heads, int index_heads, bool compressed,
                   int threads, uint64_t seed, RowFormat format = kDefaultRows<Act>) {
  TestStep step(pieces, seed);
  Guarded<Act> q = StepTensor<Act>(step, 11, heads * 512);
  Guarded<Act> kv = StepTensor<Act>(step, 12, 512);
  Guarded<Act> index_q = StepTensor<Act>(step, 21, index_heads * 128);
  std::vector<uint16_t> norm(512);
  for (int i = 0; i < 512; ++i)
    norm[static_cast<size_t>(i)] = FloatToBf16(1 + Value(13, 0, 0, i) / 4);
  TestPool window(64, 512, format);
  QkvPrepareParams p;
  p.step = &step.step_;
  p.heads = heads;
  p.q = q.data();
  p.kv = kv.data();
  p.kv_norm = norm.data();
  p.eps = 1e-6f;
  p.compressed_rope = compressed;
  p.window = window.pool();
  p.index_heads = index_heads;
  p.index_q = index_q.data();
  Launch<Act>(p, threads);
  Rows out;
  ReadTensor(step, q, heads * 512, out);
  ReadTensor(step, index_q, index_heads * 128, out);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const SequenceRows& s = step.sequences_[i];
    for (int64_t at = s.first_position; at < s.first_position + s.rows; ++at) {
      window.Read(s.window_blocks, at, out[{pieces[i].sequence, at}]);
      window.Erase(s.window_blocks, at);
    }
  }
  REQUIRE(window.AllPoison());
  return out;
}

// The share of elements begin .. end - 1 of all rows that differ.
double ShareApart(const Rows& got, const Rows& want, size_t begin, size_t end) {
  int64_t apart = 0, count = 0;
  for (const auto& [key, row] : want) {
    for (size_t i = begin; i < end; ++i, ++count) apart += got.at(key).at(i) != row.at(i);
  }
  return static_cast<double>(apart) / static_cast<double>(count);
}

TEST_CASE("cpu qkv_prepare equals the reference and keeps the row rule") {
  ForEachTarget([] {
    for (const bool compressed : {false, true}) {
      const Rows want = RunQkvPrepare<float>(kBatch, 4, 8, compressed, 1, 2);
      for (const RowFormat format : {RowFormat::kPacked, RowFormat::kBf16}) {
        RequireSame(RunQkvPrepare<uint16_t>(kBatch, 4, 8, compressed, 2, 1, format), want);
      }
      // Its rows and queries are rounded otherwise, so many differ.
      const Rows fp8 =
          RunQkvPrepare<uint16_t>(kBatch, 4, 8, compressed, 2, 1, RowFormat::kFp8PerTensor);
      RequireSame(fp8,
                  RunQkvPrepare<float>(kBatch, 4, 8, compressed, 1, 2, RowFormat::kFp8PerTensor));
      REQUIRE(ShareApart(fp8, want, 0, 4 * 512) > 0.5);
      REQUIRE(ShareApart(fp8, want, 4 * 512, 4 * 512 + 8 * 128) == 0);
      REQUIRE(ShareApart(fp8, want, 4 * 512 + 8 * 128, 5 * 512 + 8 * 128) > 0.05);
    }
    RequireRowRule([](const std::vector<Piece>& pieces, int threads, uint64_t seed) {
      return RunQkvPrepare<uint16_t>(pieces, 3, 3, true, threads, seed);
    });
  });
}

// Positions at and around the ends of compressed blocks, after which the tests write states inside
// steps.
constexpr int64_t kStatePositions[] = {1,   2,   3,   4,   5,   7,   8,   9,   63,  64,  126,
                                       127, 128, 129, 130, 255, 256, 257, 259, 260, 261, 299};

// Runs `steps` one after the other, each step's last states the next one's old states; gives the
// rows of all compressed blocks (key: sequence, compressed block), the last states (key: sequence,
// -1) and those written after kStatePositions (key: sequence, -1 - position), be it in the middle
// of a step or at its end.
template <class Act>
Rows RunCompressKv(const std::vector<std::vector<Piece>>& steps, int ratio, bool index_keys,
                   int threads, uint64_t seed, RowFormat format = kDefaultRows<Act>) {
  constexpr int64_t kOffset = 192;
  CompressKvParams p;
  p.ratio = ratio;
  p.index_keys = index_keys;
  p.eps = 1e-6f;
  const int64_t dim = p.dim(), width = p.width();
  const int64_t floats = CompressorStateFloats(ratio, dim);
  std::vector<float> ape(static_cast<size_t>(ratio * width));
  std::vector<uint16_t> norm(static_cast<size_t>(dim));
  for (size_t i = 0; i < ape.size(); ++i) ape[i] = Value(31, 0, 0, static_cast<int64_t>(i));
  for (size_t i = 0; i < norm.size(); ++i) {
    norm[i] = FloatToBf16(1 + Value(32, 0, 0, static_cast<int64_t>(i)) / 4);
  }
  p.ape = ape.data();
  p.norm = norm.data();
  Rows out;
  std::map<int, std::vector<float>> states;
  for (const std::vector<Piece>& pieces : steps) {
    TestStep step(pieces, ++seed);
    TestPool pool(kCompressedKvBlockTokens / ratio, dim,
                  !index_keys || sizeof(Act) == 4 ? format : RowFormat::kIndexFp4);
    p.rows = pool.pool();
    p.step = &step.step_;
    Guarded<float> k = StepTensor<float>(step, 33, width), z = StepTensor<float>(step, 34, width);
    for (int64_t i = 0; i < k.size(); ++i) {
      k[i] += 0.01f * z[i];  // not bf16 numbers
      z[i] *= 3;
    }
    p.k = k.data();
    p.z = z.data();
    const int64_t slot_floats = kOffset / 4 + floats;
    constexpr int64_t kSlots = 1 + std::size(kStatePositions) + 1;  // of a piece, at most
    Guarded<float> memory(static_cast<int64_t>(pieces.size()) * kSlots * slot_floats);
    p.states = {reinterpret_cast<std::byte*>(memory.data()) + kOffset, slot_floats * 4};
    const auto state_of = [&](int32_t slot) {
      return reinterpret_cast<float*>(p.states.Slot(slot));
    };
    int32_t slots = 0;
    std::deque<std::vector<StateWrite>> all_writes;
    for (size_t i = 0; i < pieces.size(); ++i) {
      const std::vector<float>& old = states[pieces[i].sequence];
      step.sequences_[i].state_slot = slots++;
      std::copy(old.begin(), old.end(), state_of(step.sequences_[i].state_slot));
      std::vector<StateWrite>& state_writes = all_writes.emplace_back();
      const auto write = [&](int64_t row) {
        state_writes.push_back({static_cast<int32_t>(row), slots++});
      };
      for (const int64_t position : kStatePositions) {
        const int64_t row = position - pieces[i].first;
        if (row > 0 && row < pieces[i].rows) write(row);
      }
      write(pieces[i].rows);
      step.sequences_[i].state_writes = state_writes.data();
      step.sequences_[i].state_write_count = static_cast<int32_t>(state_writes.size());
    }
    Launch<Act>(p, threads);
    REQUIRE(memory.Intact());
    for (int32_t slot = 0; slot < slots; ++slot) {  // what lies before a state stays as it was
      const auto* before = reinterpret_cast<const unsigned char*>(p.states.Slot(slot)) - kOffset;
      REQUIRE(std::count(before, before + kOffset, Guarded<float>::kPoison) == kOffset);
    }
    for (size_t i = 0; i < pieces.size(); ++i) {
      const SequenceRows& s = step.sequences_[i];
      const int64_t end = s.first_position + s.rows;
      for (int64_t g = s.first_position / ratio; g < VisibleCompressedBlocks(end - 1, ratio); ++g) {
        pool.Read(s.compressed_kv_blocks, g, out[{pieces[i].sequence, g}]);
        pool.Erase(s.compressed_kv_blocks, g);
      }
      for (const StateWrite& write : all_writes[i]) {
        const int64_t position = s.first_position + write.row;
        const float* state = state_of(write.slot);
        const std::vector<float> values(state, state + floats);
        if (std::count(std::begin(kStatePositions), std::end(kStatePositions), position) != 0) {
          out[{pieces[i].sequence, -1 - position}] = values;
        }
        out[{pieces[i].sequence, -1}] = states[pieces[i].sequence] = values;
      }
    }
    REQUIRE(pool.AllPoison());
  }
  return out;
}

TEST_CASE("cpu compress_kv equals the reference; chunks and state writes change no bit") {
  const std::vector<Piece> whole = {{0, 0, 300}, {1, 0, 1}, {2, 0, 3}, {3, 0, 128}, {4, 0, 261}};
  const std::vector<std::vector<Piece>> chunks = {
      {{0, 0, 1}, {1, 0, 1}},
      {{0, 1, 2}, {2, 0, 2}},
      {{0, 3, 1}, {4, 0, 7}},
      {{0, 4, 3}},
      {{0, 7, 57}},
      {{3, 0, 127}, {0, 64, 62}, {2, 2, 1}},
      {{0, 126, 1}, {3, 127, 1}},
      {{0, 127, 1}},
      {{0, 128, 129}, {4, 7, 254}},
      {{0, 257, 43}},
  };
  std::vector<std::vector<Piece>> decode;
  for (int64_t t = 0; t < 300; ++t) {
    auto& step = decode.emplace_back();
    for (const Piece& piece : whole) {
      if (t < piece.rows) step.push_back({piece.sequence, t, 1});
    }
  }
  ForEachTarget([&] {
    for (const auto& [ratio, index_keys] : {std::pair{4, false}, {4, true}, {128, false}}) {
      INFO("ratio " << ratio << ", index keys " << index_keys);
      const Rows one = RunCompressKv<uint16_t>({whole}, ratio, index_keys, 1, 1);
      for (const auto& [key, row] : one) REQUIRE(NotFinite(row) == "");
      RequireSame(RunCompressKv<uint16_t>({whole}, ratio, index_keys, 3, 2), one);
      RequireSame(RunCompressKv<uint16_t>(chunks, ratio, index_keys, 2, 3), one);
      RequireSame(RunCompressKv<uint16_t>(decode, ratio, index_keys, 2, 4), one);
      RequireSame(RunCompressKv<uint16_t>({whole}, ratio, index_keys, 2, 5, RowFormat::kBf16), one);
      RequireSame(one, RunCompressKv<float>({whole}, ratio, index_keys, 1, 6));
      if (index_keys) continue;
      constexpr RowFormat kFp8 = RowFormat::kFp8PerTensor;
      RequireSame(RunCompressKv<uint16_t>(chunks, ratio, false, 2, 3, kFp8),
                  RunCompressKv<float>({whole}, ratio, false, 1, 6, kFp8));
    }
  });
}

std::vector<int32_t> TestSelection(int sequence, int64_t position, int topk) {
  const int64_t visible = VisibleCompressedBlocks(position, 4);
  std::vector<std::pair<uint64_t, int32_t>> order;
  for (int32_t g = 0; g < visible; ++g) {
    order.emplace_back(Hash(static_cast<uint64_t>(sequence * 100000 + position * 977 + g)), g);
  }
  std::sort(order.begin(), order.end());
  order.resize(std::min(order.size(), static_cast<size_t>(topk)));
  std::vector<int32_t> out;
  for (const auto& [hash, g] : order) out.push_back(g);
  std::sort(out.begin(), out.end());
  out.resize(static_cast<size_t>(topk), -1);
  return out;
}

template <class Act>
Rows RunSparseAttention(const std::vector<Piece>& pieces, int ratio, int heads, bool in_place,
                        float sink_shift, int threads, uint64_t seed, int64_t window_begin = 0,
                        RowFormat format = kDefaultRows<Act>, int32_t block_rows = 0) {
  constexpr int kTopk = 24;
  TestStep step(pieces, seed);
  TestPool window(64, 512, format);
  TestPool compressed_blocks(ratio == 0 ? 1 : kCompressedKvBlockTokens / ratio, 512, format);
  std::vector<int32_t> selected;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const SequenceRows& s = step.sequences_[i];
    const int64_t end = s.first_position + s.rows;
    window.Fill(s.window_blocks, 41, pieces[i].sequence,
                std::max(window_begin, s.first_position - (block_rows > 0 ? 128 : 127)), end);
    step.sequences_[i].window_begin = window_begin;
    if (ratio != 0) {
      compressed_blocks.Fill(s.compressed_kv_blocks, 42, pieces[i].sequence, 0,
                             VisibleCompressedBlocks(end - 1, ratio));
    }
    for (int64_t t = s.first_position; t < end; ++t) {
      for (const int32_t g : TestSelection(pieces[i].sequence, t, kTopk)) selected.push_back(g);
    }
  }
  Guarded<Act> q = StepTensor<Act>(step, 43, heads * 512),
               o = StepTensor<Act>(step, 0, heads * 512);
  std::vector<float> sink;
  for (int h = 0; h < heads; ++h) sink.push_back(Value(44, 0, 0, h) + sink_shift);
  SparseAttentionParams p;
  p.step = &step.step_;
  p.heads = heads;
  p.ratio = ratio;
  p.q = q.data();
  p.window = window.pool();
  if (ratio != 0) p.compressed = compressed_blocks.pool();
  if (ratio == 4) p.selected = selected.data();
  p.topk = kTopk;
  p.sink = sink.data();
  p.softmax_scale = 1 / std::sqrt(512.0f);
  p.o = in_place ? q.data() : o.data();
  p.block_rows = block_rows;
  Launch<Act>(p, threads);
  Rows out;
  ReadTensor(step, in_place ? q : o, heads * 512, out);
  return out;
}

TEST_CASE("cpu sparse_attention equals the reference and keeps the row rule") {
  ForEachTarget([] {
    for (const int ratio : {0, 4, 128}) {
      for (const int heads : {1, 2, 3, 4, 7, 8}) {
        INFO("ratio " << ratio << ", heads " << heads);
        const Rows packed = RunSparseAttention<uint16_t>(kBatch, ratio, heads, heads == 4, 0, 2, 1);
        RequireClose(packed, RunSparseAttention<float>(kBatch, ratio, heads, false, 0, 1, 2),
                     0.99996, 0.01);
        RequireSame(
            RunSparseAttention<uint16_t>(kBatch, ratio, heads, false, 0, 3, 3, 0, RowFormat::kBf16),
            packed);
      }
      constexpr RowFormat kFp8 = RowFormat::kFp8PerTensor;
      RequireClose(RunSparseAttention<uint16_t>(kBatch, ratio, 5, true, 0, 2, 1, 0, kFp8),
                   RunSparseAttention<float>(kBatch, ratio, 5, false, 0, 1, 2, 0, kFp8), 0.99996,
                   0.01);
      if (ratio == 4) {
        RequireRowRule([&](const std::vector<Piece>& pieces, int threads, uint64_t seed) {
          return RunSparseAttention<uint16_t>(pieces, 4, 4, false, 0, threads, seed, 0, kFp8);
        });
      }
      RequireRowRule([&](const std::vector<Piece>& pieces, int threads, uint64_t seed) {
        return RunSparseAttention<uint16_t>(pieces, ratio, 5, false, 0, threads, seed);
      });
    }
    // A sink far above and far below all scores.
    for (const float shift : {60.0f, -1000.0f}) {
      RequireClose(RunSparseAttention<uint16_t>(kBatch, 4, 4, false, shift, 2, 1),
                   RunSparseAttention<float>(kBatch, 4, 4, false, shift, 1, 2), 0.99996, 0.01);
    }
  });
}

TEST_CASE("cpu sparse_attention of blocks equals the reference and keeps the row rule") {
  const std::vector<Piece> blocks = {{0, 1, 5}, {1, 126, 5}, {2, 300, 16}, {3, 64, 1}};
  const auto run = [](const std::vector<Piece>& pieces, RowFormat format, int threads) {
    return RunSparseAttention<uint16_t>(pieces, 0, 5, false, 0, threads, 1, 0, format, 16);
  };
  const Rows want =
      RunSparseAttention<float>(blocks, 0, 5, false, 0, 1, 1, 0, kDefaultRows<float>, 16);
  ForEachTarget([&] {
    const Rows got = run(blocks, RowFormat::kPacked, 2);
    RequireClose(got, want, 0.9999, 0.01);
    RequireSame(run(blocks, RowFormat::kBf16, 3), got);
    for (const Piece& block : blocks) {
      for (const auto& [key, row] : run({block}, RowFormat::kPacked, 1)) {
        REQUIRE(SameBits(row, got.at(key)));
      }
    }
  });
}

TEST_CASE("sparse_attention sees no window row below its sequence's first") {
  const std::vector<Piece> late = {{0, 1, 6}, {1, 100, 80}, {2, 1, 1}};
  const Rows want = RunSparseAttention<float>(late, 0, 4, false, 0, 1, 1, 1);
  ForEachTarget([&] {
    const Rows got = RunSparseAttention<uint16_t>(late, 0, 4, false, 0, 2, 2, 1);
    RequireClose(got, want, 0.99996, 0.01);
    // A window that the first row does not reach into is the same with and without that row.
    const Rows all = RunSparseAttention<uint16_t>(late, 0, 4, false, 0, 2, 3, 0);
    REQUIRE(SameBits(got.at({1, 128}), all.at({1, 128})));
    REQUIRE_FALSE(SameBits(got.at({1, 127}), all.at({1, 127})));
    REQUIRE_FALSE(SameBits(got.at({2, 1}), all.at({2, 1})));
  });
}

Rows RunIndexScoreTopk(const std::vector<Piece>& pieces, int heads, int topk, int threads,
                       uint64_t seed, bool check) {
  TestStep step(pieces, seed);
  TestPool keys(64, 128, RowFormat::kIndexFp4);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const SequenceRows& s = step.sequences_[i];
    keys.Fill(s.compressed_kv_blocks, 51, pieces[i].sequence, 0,
              VisibleCompressedBlocks(s.first_position + s.rows - 1, 4));
  }
  Guarded<uint16_t> q = StepTensor<uint16_t>(step, 52, heads * 128);
  Guarded<uint16_t> weights = StepTensor<uint16_t>(step, 53, heads);
  Guarded<int32_t> selected(step.step_.rows * topk);
  IndexScoreTopkParams p;
  p.step = &step.step_;
  p.heads = heads;
  p.topk = topk;
  p.q = q.data();
  p.weights = weights.data();
  p.weight_scale = 0.03f;
  p.keys = keys.pool();
  p.selected = selected.data();
  Launch<uint16_t>(p, threads);
  REQUIRE(selected.Intact());
  Rows out;
  for (int64_t r = 0; r < step.step_.rows; ++r) {
    const int64_t position = step.positions_[static_cast<size_t>(r)];
    std::vector<float>& row = out[{step.sequence(r), position}];
    for (int i = 0; i < topk; ++i) row.push_back(static_cast<float>(selected[r * topk + i]));
    if (!check) continue;
    std::vector<double> scores;
    for (int64_t g = 0; g < VisibleCompressedBlocks(position, 4); ++g) {
      std::vector<float> key;
      keys.Read(step.step_.sequences[step.step_.sequence_of[r]].compressed_kv_blocks, g, key);
      double score = 0;
      for (int h = 0; h < heads; ++h) {
        double dot = 0;
        for (int64_t e = 0; e < 128; ++e) {
          dot += double{Bf16ToFloat(q[(r * heads + h) * 128 + e])} *
                 double{key[static_cast<size_t>(e)]};
        }
        score += double{Bf16ToFloat(weights[r * heads + h])} * std::max(0.0, dot);
      }
      scores.push_back(score);
    }
    INFO("sequence " << step.sequence(r) << ", position " << position);
    // In double; where two scores are closer than f32 sums can tell, either order is right.
    REQUIRE(WrongSelection(scores, topk, row.data(), 1e-5) == "");
  }
  return out;
}

TEST_CASE("cpu index_score_topk selects the highest scores and keeps the row rule") {
  ForEachTarget([] {
    for (const int heads : {1, 8, 11}) {
      for (const int topk : {1, 16, 33, 64}) {
        RunIndexScoreTopk(kBatch, heads, topk, 2, 1, true);
      }
    }
    RequireRowRule([](const std::vector<Piece>& pieces, int threads, uint64_t seed) {
      return RunIndexScoreTopk(pieces, 8, 16, threads, seed, false);
    });
  });
}

TEST_CASE(
    "cpu index_score_topk keeps the row rule when workers share a long row's compressed blocks") {
  ForEachTarget([] {
    const Rows alone = RunIndexScoreTopk({{0, 1000, 3}}, 64, 100, 1, 1, true);
    RequireSame(RunIndexScoreTopk({{0, 1000, 3}}, 64, 100, 2, 2, false), alone);
    const Rows batch =
        RunIndexScoreTopk({{1, 0, 40}, {0, 990, 20}, {2, 900, 9}}, 64, 100, 3, 3, true);
    for (const auto& [key, row] : alone) REQUIRE(SameBits(row, batch.at(key)));
  });
}

// Room for entries that end where no page follows: whoever reads or writes more faults.
class GuardedEntries {
 public:
  GuardedEntries() {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    bytes_ = 2 * page;
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory_ != MAP_FAILED);
    end_ = reinterpret_cast<int32_t*>(static_cast<std::byte*>(memory_) + page);
    REQUIRE(mprotect(end_, page, PROT_NONE) == 0);
  }
  ~GuardedEntries() { munmap(memory_, bytes_); }
  GuardedEntries(const GuardedEntries&) = delete;
  int32_t* Last(int64_t count) const { return end_ - count; }

 private:
  size_t bytes_ = 0;
  void* memory_ = nullptr;
  int32_t* end_ = nullptr;
};

TEST_CASE("cpu top-k is exact, with ties to the lowest index, and touches nothing behind it") {
  const GuardedEntries entries;
  std::mt19937_64 random(5);
  for (int round = 0; round < 300; ++round) {
    const int64_t n = 2 + static_cast<int64_t>(random() % 700);
    const auto k = static_cast<int32_t>(1 + random() % static_cast<uint64_t>(n - 1));
    const uint64_t distinct = 1 + random() % 40;  // many ties
    std::vector<float> scores(static_cast<size_t>(n), 0.0f);
    for (float& s : scores) {
      s = static_cast<float>(random() % distinct) - 7.0f;
      if (round % 3 == 0) s = std::ldexp(s + 0.37f, static_cast<int>(random() % 200) - 100);
      if (round % 7 == 0 && random() % 9 == 0) s = -std::numeric_limits<float>::infinity();
      s += 0.0f;
    }
    std::vector<int32_t> order(scores.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
    });
    order.resize(static_cast<size_t>(k));
    std::sort(order.begin(), order.end());
    ForEachTarget([&] {
      std::vector<float> used = scores;
      used.resize(static_cast<size_t>(n + 31) / 32 * 32, 1e30f);
      int32_t* const got = entries.Last(k);
      got[-1] = -7;
      SelectTopK(used.data(), n, k, got);
      REQUIRE(std::equal(order.begin(), order.end(), got));
      REQUIRE(got[-1] == -7);
    });
  }
}

}  // namespace
}  // namespace dsv4::test
