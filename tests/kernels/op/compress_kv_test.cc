// SPDX-License-Identifier: Apache-2.0
// compress_kv of a backend against the reference in published numerics, in batches of several
// sequences; and whatever the chunks, the state writes and the layout in memory, the same bits.
#include <algorithm>
#include <cmath>

#include "tests/kernels/operator_step.h"

namespace dsv4::test {
namespace {

// Positions at and around the ends of compressed blocks, after which the tests write states inside
// steps.
constexpr int64_t kStatePositions[] = {1,   2,   3,   4,    5,    7,    8,    9,    63,  64,  126,
                                       127, 128, 129, 130,  255,  256,  257,  259,  260, 261, 299,
                                       511, 512, 513, 2047, 2048, 2049, 2050, 2051, 2052};

// Runs `steps` one after the other, each step's last states the next one's old states; gives the
// rows of all compressed blocks (key: sequence, compressed block), the last states (key: sequence,
// -1) and those written after kStatePositions (key: sequence, -1 - position).
struct CompressedRows {
  Rows rows, states;
};

CompressedRows RunCompressKv(On on, const std::vector<std::vector<Piece>>& steps, int ratio,
                             bool index_keys, Layout layout,
                             RowFormat format = RowFormat::kPacked) {
  constexpr int64_t kOffset = 48;  // floats
  CompressKvParams p;
  p.ratio = ratio;
  p.index_keys = index_keys;
  p.eps = 1e-6f;
  const int64_t dim = p.dim(), width = p.width();
  const int64_t floats = CompressorStateFloats(ratio, dim), slot = kOffset + floats;
  std::vector<float> ape_values;
  for (int64_t i = 0; i < ratio * width; ++i) ape_values.push_back(Value(31, 0, 0, i));
  const Array<float> ape(on, ape_values);
  const Array<uint16_t> norm(on, RandomNorm(32, dim));
  p.ape = ape.data();
  p.norm = norm.data();
  CompressedRows out;
  std::map<int, std::vector<float>> states;
  for (const std::vector<Piece>& pieces : steps) {
    ++layout.seed;
    Step step(on, pieces, layout);
    Pool pool(step, kCompressedKvBlockTokens / ratio, dim,
              index_keys ? RowFormat::kIndexFp4 : format);
    std::vector<float> k_values = StepValues(step, 33, width);
    std::vector<float> z_values = StepValues(step, 34, width);
    for (size_t i = 0; i < k_values.size(); ++i) {
      k_values[i] += 0.01f * z_values[i];  // not bf16 numbers
      z_values[i] *= 3;
    }
    const Array<float> k(on, k_values), z(on, z_values);
    p.k = k.data();
    p.z = z.data();
    // All states of the step lie one after the other: of each sequence, the old one and the written
    // ones.
    std::vector<float> before;
    std::deque<std::vector<StateWrite>> writes;
    const auto next_slot = [&](const std::vector<float>& state) {
      const auto number = static_cast<int32_t>(before.size() / static_cast<size_t>(slot));
      before.resize(before.size() + static_cast<size_t>(slot), std::bit_cast<float>(0xfdfdfdfdu));
      std::copy(state.begin(), state.end(), before.end() - floats);
      return number;
    };
    for (size_t i = 0; i < pieces.size(); ++i) {
      SequenceRows& s = step.host(i);
      s.state_slot = next_slot(states[pieces[i].sequence]);
      std::vector<StateWrite>& own = writes.emplace_back();
      for (const int64_t position : kStatePositions) {
        const int64_t row = position - s.first_position;
        if (row > 0 && row < s.rows) own.push_back({static_cast<int32_t>(row), next_slot({})});
      }
      own.push_back({s.rows, next_slot({})});
      s.state_writes = own.data();
      s.state_write_count = static_cast<int32_t>(own.size());
    }
    const Array<float> memory(on, before);
    p.states = {reinterpret_cast<std::byte*>(memory.data() + kOffset), slot * 4};
    p.step = step.Rows();
    p.rows = pool.For(step);
    Launch(on, p, layout.threads);
    pool.Download();
    const std::vector<float> after = memory.Get();
    for (size_t i = 0; i < pieces.size(); ++i) {
      const int sequence = pieces[i].sequence;
      const SequenceRows& s = step.host(i);
      const int64_t end = s.first_position + s.rows;
      for (int64_t g = s.first_position / ratio; g < VisibleCompressedBlocks(end - 1, ratio); ++g) {
        pool.Read(s.compressed_kv_blocks, g, out.rows[{sequence, g}]);
        pool.Erase(s.compressed_kv_blocks, g);
      }
      // The old state, and what lies before a state, stays as it was.
      const auto stays = [&](int64_t number, int64_t count) {
        return std::memcmp(&after[static_cast<size_t>(number * slot)],
                           &before[static_cast<size_t>(number * slot)],
                           static_cast<size_t>(count) * 4) == 0;
      };
      REQUIRE(stays(s.state_slot, slot));
      for (const StateWrite& write : writes[i]) {
        REQUIRE(stays(write.slot, kOffset));
        const auto begin = after.begin() + write.slot * slot + kOffset;
        const std::vector<float> values(begin, begin + floats);
        const int64_t position = s.first_position + write.row;
        if (std::count(std::begin(kStatePositions), std::end(kStatePositions), position) != 0) {
          out.states[{sequence, -1 - position}] = values;
        }
        out.states[{sequence, -1}] = states[sequence] = values;
      }
    }
    REQUIRE(pool.AllPoison());
  }
  return out;
}

void RequireSameRows(const CompressedRows& got, const CompressedRows& want) {
  RequireSame(got.rows, want.rows);
  RequireSame(got.states, want.states);
}
void RequireCloseRows(const CompressedRows& got, const CompressedRows& want, bool index_keys,
                      RowFormat format = RowFormat::kPacked) {
  const double equal = Tested().equal_others;
  RequireClose(got.rows, want.rows, equal, index_keys ? kIndexStep : StepOf(format));
  RequireClose(got.states, want.states, equal == 1 ? 1 : 0, {.of_largest = 1e-5});
}

constexpr std::pair<int, bool> kCompressors[] = {{4, false}, {4, true}, {128, false}};

// One sequence in steps that end at these positions.
std::vector<std::vector<Piece>> StepsTo(const std::vector<int64_t>& ends) {
  std::vector<std::vector<Piece>> steps;
  int64_t first = 0;
  for (const int64_t end : ends) {
    steps.push_back({{5, first, static_cast<int32_t>(end - first)}});
    first = end;
  }
  return steps;
}

TEST_CASE("compress_kv equals the reference; chunks and state writes change no bit") {
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
  constexpr int64_t kSingles = 140;
  for (int64_t t = 0; t < kSingles; ++t) {
    auto& step = decode.emplace_back();
    for (const Piece& piece : whole) {
      if (t < piece.rows) step.push_back({piece.sequence, t, 1});
    }
  }
  decode.push_back({{0, kSingles, 160}, {4, kSingles, 121}});
  for (const auto& [ratio, index_keys] : kCompressors) {
    INFO("ratio " << ratio << ", index keys " << index_keys);
    for (const RowFormat format : Tested().formats) {
      if (index_keys && format == kFp8) continue;
      const auto run = [&, ratio = ratio, index_keys = index_keys](
                           On on, const std::vector<std::vector<Piece>>& steps,
                           const Layout& layout) {
        return RunCompressKv(on, steps, ratio, index_keys, layout, format);
      };
      const CompressedRows want = run(On::kReference, {whole}, kPlain);
      ForEachVariant([&, index_keys = index_keys] {
        const CompressedRows one = run(On::kTested, {whole}, kPlain);
        for (const auto& [key, row] : one.states) REQUIRE(NotFinite(row) == "");
        RequireCloseRows(one, want, index_keys, format);
        RequireSameRows(run(On::kTested, chunks, kPadded), one);
        if (format != RowFormat::kPacked) return;
        RequireSameRows(run(On::kTested, {whole}, kPadded), one);
        RequireSameRows(run(On::kTested, {whole}, kFar), one);
        RequireSameRows(run(On::kTested, decode, kPlain), one);
      });
    }
  }
}

TEST_CASE("compress_kv changes no bit where long chunks and decode steps end") {
  for (const auto& [ratio, index_keys] : kCompressors) {
    INFO("ratio " << ratio << ", index keys " << index_keys);
    const auto run = [&, ratio = ratio, index_keys = index_keys](
                         On on, const std::vector<int64_t>& ends, const Layout& layout) {
      return RunCompressKv(on, StepsTo(ends), ratio, index_keys, layout);
    };
    const CompressedRows want = run(On::kReference, {2056}, kPlain);
    ForEachVariant([&, index_keys = index_keys] {
      const CompressedRows one = run(On::kTested, {2056}, kPlain);
      RequireCloseRows(one, want, index_keys);
      // Single rows around each border, then chunks to and from each of them.
      for (const std::vector<int64_t>& ends :
           {std::vector<int64_t>{126,  127,  128,  129,  130,  254,  255,  256,
                                 257,  258,  510,  511,  512,  513,  514,  2046,
                                 2047, 2048, 2049, 2050, 2051, 2052, 2053, 2056},
            {128, 255, 257, 512, 2047, 2049, 2051, 2056},
            {127, 129, 256, 511, 513, 2048, 2050, 2052, 2056}}) {
        RequireSameRows(run(On::kTested, ends, kPadded), one);
      }
    });
  }
}

TEST_CASE("compress_kv on few shapes", "[few]") {
  for (const auto& [ratio, index_keys] : kCompressors) {
    const std::vector<std::vector<Piece>> steps = {{{0, 0, 127}, {1, 0, 5}}, {{0, 127, 2}}};
    RequireClose(RunCompressKv(On::kTested, steps, ratio, index_keys, kPadded).rows,
                 RunCompressKv(On::kReference, steps, ratio, index_keys, kPlain).rows,
                 Tested().equal_others, kIndexStep);
  }
}

}  // namespace
}  // namespace dsv4::test
