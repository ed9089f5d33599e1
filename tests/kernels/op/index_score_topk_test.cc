// SPDX-License-Identifier: Apache-2.0
// index_score_topk of a backend: the highest scores by sums in double, exactly the lowest of
// equals, at lengths around every border of the plans of GPUs up to a context of a million tokens;
// and the row rule.
#include <cmath>
#include <limits>

#include "lib/tensor/quant_format.h"
#include "tests/kernels/operator_step.h"
#include "tests/kernels/top_selection.h"

namespace dsv4::test {
namespace {

// The keys of one row's compressed blocks in memory of their own: random codes and scales, or
// `kinds` different keys over and over.
struct Keys {
  Keys(int64_t compressed_blocks, uint64_t seed, int kinds) {
    const int64_t blocks = (compressed_blocks + 63) / 64;
    pool = RowPool::Of(nullptr, RowFormat::kIndexFp4, 128, 64);
    memory.resize(static_cast<size_t>(blocks * pool.block_stride_bytes));
    pool.base = reinterpret_cast<std::byte*>(memory.data());
    for (int32_t b = 0; b < blocks; ++b) table.push_back(b);
    std::mt19937_64 random(seed);
    std::shuffle(table.begin(), table.end(), random);
    for (int64_t g = 0; g < blocks * 64; ++g) {
      const uint64_t kind =
          kinds > 0 ? Hash(seed + static_cast<uint64_t>(g)) % kinds : static_cast<uint64_t>(g);
      auto* data = reinterpret_cast<uint8_t*>(pool.Row(table[g / 64], g % 64));
      auto* scales = reinterpret_cast<uint8_t*>(pool.Scales(table[g / 64], g % 64));
      for (uint64_t i = 0; i < 8; ++i) {
        const uint64_t bits = Hash(seed * 77 + kind * 8 + i);
        std::memcpy(data + 8 * i, &bits, 8);
        if (i < 4) scales[i] = static_cast<uint8_t>(124 + bits % 5);
      }
    }
  }
  std::vector<unsigned char> memory;
  std::vector<int32_t> table;
  RowPool pool;
};

// A step of rows at positions first .. first + rows - 1 of one sequence.
struct IndexStep {
  int heads, topk;
  int64_t first;
  int32_t rows;
  int64_t max_position;
  uint64_t seed = 1;
  int threads = 1;
};

// As qkv_prepare leaves them: e2m1 times powers of two.
std::vector<float> QueriesOf(const IndexStep& how) {
  std::vector<float> q;
  for (int64_t position = how.first; position < how.first + how.rows; ++position) {
    for (int64_t i = 0; i < int64_t{how.heads} * 128; ++i) {
      const uint64_t h = Hash(how.seed * 1000003 + static_cast<uint64_t>(position * 16384 + i));
      q.push_back(E2M1ToFloat(static_cast<uint8_t>(h & 15)) *
                  std::ldexp(1.0f, static_cast<int>(i / 32 % 4) - 2));
    }
  }
  return q;
}

std::vector<float> HeadWeightsOf(const IndexStep& how) {
  std::vector<float> weights;
  for (int64_t position = how.first; position < how.first + how.rows; ++position) {
    for (int h = 0; h < how.heads; ++h) weights.push_back(Value(53, 0, position, h));
  }
  return weights;
}

constexpr float kWeightScale = 0.03125f;

// What is selected for each row: [rows, topk].
std::vector<int32_t> RunIndex(const IndexStep& how, const Keys& keys) {
  constexpr On on = On::kTested;
  std::vector<int64_t> positions;
  for (int32_t r = 0; r < how.rows; ++r) positions.push_back(how.first + r);
  const Array<int32_t> table(on, keys.table);
  const Array<int32_t> sequence_of(on, std::vector<int32_t>(positions.size(), 0));
  const Array<int64_t> position_rows(on, positions);
  SequenceRows s;
  s.rows = how.rows;
  s.first_position = how.first;
  s.compressed_kv_blocks = table.data();
  const Array<SequenceRows> sequences(on, std::vector<SequenceRows>{s});
  const Array<unsigned char> memory(on, keys.memory);
  const Acts q(on, QueriesOf(how)), weights(on, HeadWeightsOf(how));
  const Array<int32_t> selected(on, int64_t{how.rows} * how.topk);
  StepRows step;
  step.rows = how.rows;
  step.sequence_count = 1;
  step.sequences = sequences.data();
  step.host_sequences = &s;
  step.sequence_of = sequence_of.data();
  step.positions = position_rows.data();
  step.max_position = how.max_position;
  IndexScoreTopkParams p;
  p.step = &step;
  p.heads = how.heads;
  p.topk = how.topk;
  p.q = q.data();
  p.weights = weights.data();
  p.weight_scale = kWeightScale;
  p.keys = keys.pool;
  p.keys.base = reinterpret_cast<std::byte*>(memory.data());
  p.selected = selected.data();
  Launch(on, p, how.threads);
  return selected.Get();
}

// The scores of each row's compressed blocks, by sums in double.
std::vector<std::vector<double>> ScoresOf(const IndexStep& how, const Keys& keys) {
  const std::vector<float> q = QueriesOf(how), weights = HeadWeightsOf(how);
  std::vector<std::vector<double>> all;
  for (int32_t r = 0; r < how.rows; ++r) {
    std::vector<double>& scores = all.emplace_back();
    float key[128];
    for (int64_t g = 0; g < VisibleCompressedBlocks(how.first + r, 4); ++g) {
      LoadRow(keys.pool, keys.table[static_cast<size_t>(g / 64)], g % 64, key);
      double score = 0;
      for (int h = 0; h < how.heads; ++h) {
        const size_t row = static_cast<size_t>(r) * static_cast<size_t>(how.heads) + h;
        double dot = 0;
        for (size_t e = 0; e < 128; ++e) dot += double{q[row * 128 + e]} * key[e];
        score += double{weights[row] * kWeightScale} * std::max(0.0, dot);
      }
      scores.push_back(score);
    }
  }
  return all;
}

// On every variant and with several threads.
void RequireTop(IndexStep how, const Keys& keys) {
  INFO("rows from " << how.first << ", heads " << how.heads << ", topk " << how.topk);
  const std::vector<std::vector<double>> scores = ScoresOf(how, keys);
  how.threads = 2;
  ForEachVariant([&] {
    const std::vector<int32_t> selected = RunIndex(how, keys);
    for (int32_t r = 0; r < how.rows; ++r) {
      INFO("row " << r);
      REQUIRE(WrongSelection(scores[static_cast<size_t>(r)], how.topk,
                             selected.data() + int64_t{r} * how.topk, 2e-6) == "");
    }
  });
}

TEST_CASE("index_score_topk selects the highest scores") {
  const Keys keys(6000, 1, 0);
  for (const int heads : {1, 8, 11, 64, 128}) {
    if (heads > Tested().most_heads) continue;
    for (const int topk : {1, 33, 64, 512}) {
      // Nothing visible, less than topk, as much, one more.
      for (const IndexStep& how :
           {IndexStep{heads, topk, 0, 9, 24000}, IndexStep{heads, topk, 4 * topk - 3, 12, 24000},
            IndexStep{heads, topk, 126, 4, 24000}, IndexStep{heads, topk, 510, 6, 24000},
            IndexStep{heads, topk, 5000, 2, 24000}}) {
        RequireTop(how, keys);
      }
    }
  }
  // Around 4,096 compressed blocks, where more keys go to a thread; many rows, on both sides of
  // topk compressed blocks.
  RequireTop({4, 512, 4 * 4096 - 4, 12, 24000}, keys);
  RequireTop({4, 512, 1950, 192, 24000}, keys);
}

TEST_CASE("index_score_topk selects from slices of a long context") {
  const int64_t compressed_blocks = 262144;
  const Keys keys(compressed_blocks, 2, 0);
  for (const int64_t visible :
       {int64_t{16383}, int64_t{16384}, int64_t{16385}, int64_t{40000}, compressed_blocks}) {
    RequireTop({2, 512, 4 * visible - 1, 1, 4 * compressed_blocks}, keys);
  }
  // Rows of one slice with rows of two, and of two with three. And more rows than the memory for
  // scores holds: they take several rounds, and each counts its slices anew.
  RequireTop({2, 512, 4 * 16384 - 20, 48, 4 * compressed_blocks}, keys);
  RequireTop({2, 1024, 4 * 32768 - 10, 21, 4 * 40000}, keys);
  if (Tested().most_rows < 260) return;
  RequireTop({1, 64, 4 * 16384 - 200, 260, 4 * compressed_blocks}, keys);
}

// All scores are exact: small integers times powers of two, one head.
TEST_CASE("index_score_topk selects the lowest of equal scores") {
  for (const int64_t visible : {700, 5000, 40000}) {
    for (const int kinds : {1, 3, 40}) {
      const Keys keys(visible, 3, kinds);
      const IndexStep how{1, 512, 4 * visible - 1, 1, 4 * visible + 4, 5};
      const std::vector<double> scores = ScoresOf(how, keys)[0];
      std::vector<int32_t> want(scores.size());
      for (size_t i = 0; i < want.size(); ++i) want[i] = static_cast<int32_t>(i);
      std::stable_sort(want.begin(), want.end(), [&](int32_t a, int32_t b) {
        return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
      });
      want.resize(512);
      std::sort(want.begin(), want.end());
      INFO(visible << " compressed blocks of " << kinds << " kinds");
      ForEachVariant([&] { REQUIRE(RunIndex(how, keys) == want); });
    }
  }
}

TEST_CASE("index_score_topk keeps the row rule") {
  const Keys keys(6000, 4, 0);
  const int heads = std::min(64, Tested().most_heads);
  ForEachVariant([&] {
    const std::vector<int32_t> all = RunIndex({heads, 512, 20000, 192, 24000}, keys);
    int threads = 0;
    for (const auto& [first, rows] : {std::pair{20000, 1},
                                      {20001, 3},
                                      {20004, 2},
                                      {20006, 6},
                                      {20012, 8},
                                      {20020, 48},
                                      {20036, 64},
                                      {20100, 65},
                                      {20191, 1}}) {
      // Another bound of positions, and with it another plan.
      for (const int64_t max_position : {24000, 100000, 1048576}) {
        const IndexStep how{heads, 512, first, rows, max_position, 1, 1 + ++threads % 3};
        const auto begin = all.begin() + (first - 20000) * 512;
        REQUIRE(RunIndex(how, keys) == std::vector<int32_t>(begin, begin + rows * 512));
      }
    }
  });
}

// A step of several sequences with padding: the same compressed blocks as each sequence alone has.
TEST_CASE("index_score_topk keeps sequences apart") {
  const auto run = [](On on, const std::vector<Piece>& pieces, const Layout& layout) {
    Step step(on, pieces, layout);
    Pool keys(step, 64, 128, RowFormat::kIndexFp4);
    for (size_t i = 0; i < pieces.size(); ++i) {
      const SequenceRows& s = step.host(i);
      keys.Fill(s.compressed_kv_blocks, 51, pieces[i].sequence, 0,
                VisibleCompressedBlocks(s.first_position + s.rows - 1, 4));
    }
    constexpr int kHeads = 8, kTopk = 24;
    const Acts q(on, StepValues(step, 52, kHeads * 128)), weights(on, StepValues(step, 53, kHeads));
    const Array<int32_t> selected(on, int64_t{step.rows()} * kTopk);
    IndexScoreTopkParams p;
    p.step = step.Rows();
    p.heads = kHeads;
    p.topk = kTopk;
    p.q = q.data();
    p.weights = weights.data();
    p.weight_scale = 0.03f;
    p.keys = keys.For(step);
    p.selected = selected.data();
    Launch(on, p, layout.threads);
    Rows out;
    AddStepRows(step, selected.Get(), kTopk, &out);
    return out;
  };
  std::vector<Piece> pieces = {{0, 0, 7}, {1, 250, 10}, {2, 2047, 6}, {3, 95, 9}, {4, 511, 1}};
  // Few rows a sequence, and more than 64 in all: four neighbours that share a block are seldom of
  // one sequence.
  for (int i = 5; i < 30; ++i) pieces.push_back({i, 37 * i % 500, 1 + i % 4});
  const Rows want = run(On::kReference, pieces, {.seed = 2});
  ForEachVariant([&] {
    const Rows got = run(On::kTested, pieces,
                         {.seed = 1, .threads = 3, .padding_rows = 5, .padding_sequences = 1});
    // Scores of full f32 sums order these few compressed blocks as double sums do.
    RequireSame(got, want);
    for (size_t i = 0; i < 8; ++i) {
      RequireAmong(run(On::kTested, {pieces[i]},
                       {.seed = 3, .first_block = 2200, .gap_bytes = 1 << 20, .blocks = 64}),
                   got);
    }
  });
}

}  // namespace
}  // namespace dsv4::test
