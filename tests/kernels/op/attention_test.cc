// SPDX-License-Identifier: Apache-2.0
// qkv_prepare and sparse_attention of a backend against the reference in published numerics, in
// batches of several sequences with shuffled blocks and padding; and the row rule, bit for bit: a
// row alone, in chunks, in a batch, and on any number of threads.
#include <algorithm>
#include <cmath>

#include "tests/kernels/operator_step.h"
#include "tests/support/shard.h"

namespace dsv4::test {
namespace {

constexpr Distance kAttentionStep{.of_largest = 0.01};

// Around every border: windows of 128, blocks of 64 and 256, compressed blocks of 4 and 128, 512
// compressed blocks. As one step, 196 rows; its splits have 1, 2, 3, 6, 7, 8, 48, 64, 65 and 192.
const std::vector<Piece> kBatch = {
    {0, 0, 1},    {1, 0, 6},   {2, 3, 1},   {3, 2, 9},     {4, 60, 8},   {5, 126, 5},
    {6, 250, 10}, {7, 383, 1}, {8, 129, 1}, {9, 120, 140}, {10, 509, 6}, {11, 2045, 8},
};
const std::vector<std::vector<Piece>> kSplits = {
    {{7, 383, 1}},
    {{9, 126, 2}},
    {{9, 120, 7}},
    {{9, 127, 1}, {5, 126, 5}},
    {{9, 128, 64}},
    {{9, 192, 65}},
    {{9, 255, 5}, {0, 0, 1}},
    {{11, 2045, 2}, {10, 510, 1}},
    {{11, 2047, 3}, {6, 251, 5}},
    {{9, 209, 48}},
    // Neighbouring rows are at neighbouring positions: other pairs of them than in the whole, and a
    // pair of two sequences.
    {{0, 0, 1}, {9, 120, 140}},
    {{9, 121, 5}, {5, 126, 5}, {11, 2045, 8}, {10, 509, 6}, {6, 250, 10}, {4, 60, 8}},
    {{11, 2045, 8},
     {10, 509, 6},
     {9, 120, 140},
     {6, 250, 10},
     {5, 126, 5},
     {4, 60, 8},
     {3, 2, 9},
     {1, 0, 6}},
};
using Run = std::function<Rows(On, const std::vector<Piece>&, const Layout&)>;

void RequireRowRule(const Run& run) {
  ForEachVariant([&] {
    const Rows whole = run(On::kTested, kBatch, kPlain);
    RequireSame(run(On::kTested, kBatch, kPadded), whole);
    RequireSame(run(On::kTested, kBatch, kFar), whole);
    for (const std::vector<Piece>& pieces : kSplits) {
      for (const Layout& layout : {kPlain, kPadded}) {
        if (layout.padding_rows == 0 && Tested().host_memory) continue;  // fewer threads alone
        RequireAmong(run(On::kTested, pieces, layout), whole);
      }
    }
  });
}

struct Prepared {
  Rows rows;     // queries, then the window's row
  Rows index_q;  // empty where there are none
};

Prepared RunQkvPrepare(On on, const std::vector<Piece>& pieces, const Layout& layout, int heads,
                       int index_heads, bool compressed, RowFormat format) {
  Step step(on, pieces, layout);
  const Acts q(on, StepValues(step, 11, heads * 512)), kv(on, StepValues(step, 12, 512));
  const Acts index_q(on, StepValues(step, 21, index_heads * 128));
  const Array<uint16_t> norm(on, RandomNorm(13, 512));
  Pool window(step, 64, 512, format);
  QkvPrepareParams p;
  p.step = step.Rows();
  p.heads = heads;
  p.q = q.data();
  p.kv = kv.data();
  p.kv_norm = norm.data();
  p.eps = 1e-6f;
  p.compressed_rope = compressed;
  p.window = window.For(step);
  p.index_heads = index_heads;
  p.index_q = index_heads > 0 ? index_q.data() : nullptr;
  Launch(on, p, layout.threads);
  window.Download();
  Prepared prepared;
  if (index_heads > 0) AddStepRows(step, index_q.Get(), index_heads * 128, &prepared.index_q);
  Rows& out = prepared.rows;
  AddStepRows(step, q.Get(), heads * 512, &out);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const SequenceRows& s = step.host(i);
    for (int64_t at = s.first_position; at < s.first_position + s.rows; ++at) {
      window.Read(s.window_blocks, at, out[{pieces[i].sequence, at}]);
      window.Erase(s.window_blocks, at);
    }
  }
  REQUIRE(window.AllPoison());
  return prepared;
}

// The share of elements begin .. end - 1 of all rows that differ.
double ShareApart(const Rows& got, const Rows& want, size_t begin, size_t end) {
  int64_t apart = 0, count = 0;
  for (const auto& [key, row] : want) {
    for (size_t i = begin; i < end; ++i, ++count) apart += got.at(key).at(i) != row.at(i);
  }
  return static_cast<double>(apart) / static_cast<double>(count);
}

TEST_CASE("qkv_prepare equals the reference and keeps the row rule") {
  for (const bool compressed : {false, true}) {
    const auto run = [&](On on, RowFormat format) {
      return RunQkvPrepare(on, kBatch, kPlain, 4, 8, compressed, format);
    };
    for (const RowFormat format : Tested().formats) {
      const Prepared want = run(On::kReference, format);
      ForEachVariant([&] {
        const Prepared got = run(On::kTested, format);
        RequireClose(got.rows, want.rows, Tested().equal_others, StepOf(format));
        RequireClose(got.index_q, want.index_q, Tested().equal_others, kIndexStep);
        if (format != kFp8) return;
        // Its rows and queries are rounded otherwise, so many differ.
        const Prepared other = run(On::kTested, RowFormat::kPacked);
        REQUIRE(ShareApart(got.rows, other.rows, 0, 4 * 512) > 0.5);
        REQUIRE(ShareApart(got.rows, other.rows, 4 * 512, 5 * 512) > 0.05);
        RequireSame(got.index_q, other.index_q);
      });
    }
  }
  for (const RowFormat format : {RowFormat::kPacked, kFp8}) {
    RequireRowRule([&](On on, const std::vector<Piece>& pieces, const Layout& layout) {
      return RunQkvPrepare(on, pieces, layout, 3, 3, true, format).rows;
    });
  }
  RequireRowRule([](On on, const std::vector<Piece>& pieces, const Layout& layout) {
    return RunQkvPrepare(on, pieces, layout, 1, 3, true, RowFormat::kPacked).index_q;
  });
}

// What came from a broken activation must not look sound again.
TEST_CASE("attention over a row with a NaN or an infinity gives no sound number") {
  ForEachVariant([] {
    for (const RowFormat format : Tested().formats) {
      for (const uint16_t broken : {0x7fc0, 0xffc0, 0x7f80, 0xff80}) {
        Step step(On::kTested, {{0, 130, 1}}, kPlain);
        Pool window(step, 64, 512, format);
        window.Fill(step.host(0).window_blocks, 41, 0, 3, 130);
        const Acts q(On::kTested, StepValues(step, 11, 512));
        std::vector<float> row(512, 1.0f);
        row[77] = Bf16ToFloat(broken);
        const Acts kv(On::kTested, row);
        const Array<uint16_t> norm(On::kTested, RandomNorm(13, 512));
        QkvPrepareParams p;
        p.step = step.Rows();
        p.heads = 1;
        p.q = q.data();
        p.kv = kv.data();
        p.kv_norm = norm.data();
        p.eps = 1e-6f;
        p.window = window.For(step);
        Launch(On::kTested, p);
        const Array<float> sink(On::kTested, std::vector<float>{0.0f});
        SparseAttentionParams attend;
        attend.step = p.step;
        attend.heads = 1;
        attend.q = attend.o = q.data();
        attend.window = p.window;
        attend.sink = sink.data();
        attend.softmax_scale = 0.04f;
        Launch(On::kTested, attend);
        for (const float v : q.Get()) REQUIRE_FALSE(std::isfinite(v));
      }
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

struct Attention {
  int ratio = 0, heads = 4, topk = 24;
  bool in_place = false;
  float sink_shift = 0, q_scale = 1;
  int64_t window_begin = 0;
  RowFormat format = RowFormat::kPacked;
  int64_t broken_position = -1;  // its window row is infinite, or NaN
  int32_t block_rows = 0;
};

Rows RunSparseAttention(On on, const std::vector<Piece>& pieces, const Layout& layout,
                        const Attention& how) {
  Step step(on, pieces, layout);
  Pool window(step, 64, 512, how.format);
  Pool compressed_blocks(step, how.ratio == 0 ? 1 : kCompressedKvBlockTokens / how.ratio, 512,
                         how.format);
  std::vector<int32_t> selections;
  for (size_t i = 0; i < pieces.size(); ++i) {
    SequenceRows& s = step.host(i);
    const int64_t end = s.first_position + s.rows;
    window.Fill(s.window_blocks, 41, pieces[i].sequence,
                std::max(how.window_begin, s.first_position - (how.block_rows > 0 ? 128 : 127)),
                end);
    s.window_begin = how.window_begin;
    if (how.broken_position >= 0) {
      const int64_t at = how.broken_position;
      const int32_t block = s.window_blocks[at / 64];
      if (how.format == kFp8) std::memset(window.host().Row(block, at % 64), 0x7f, 512);
      std::memset(window.host().Scales(block, at % 64), 0xff,
                  static_cast<size_t>(RowScaleBytes(how.format)));
    }
    if (how.ratio != 0) {
      compressed_blocks.Fill(s.compressed_kv_blocks, 42, pieces[i].sequence, 0,
                             VisibleCompressedBlocks(end - 1, how.ratio));
    }
    for (int64_t t = s.first_position; t < end; ++t) {
      for (const int32_t g : TestSelection(pieces[i].sequence, t, how.topk))
        selections.push_back(g);
    }
  }
  // What padding rows have there must not be looked at.
  selections.resize(static_cast<size_t>(step.rows() * how.topk), 0x7d7d7d7d);
  const Acts q(on, StepValues(step, 43, how.heads * 512));
  const Acts o(on, int64_t{step.rows()} * how.heads * 512);
  std::vector<float> sinks;
  for (int h = 0; h < how.heads; ++h) sinks.push_back(Value(44, 0, 0, h) + how.sink_shift);
  const Array<float> sink(on, sinks);
  const Array<int32_t> selected(on, selections);
  SparseAttentionParams p;
  p.step = step.Rows();
  p.heads = how.heads;
  p.ratio = how.ratio;
  p.q = q.data();
  p.window = window.For(step);
  if (how.ratio != 0) p.compressed = compressed_blocks.For(step);
  if (how.ratio == 4) p.selected = selected.data();
  p.topk = how.topk;
  p.sink = sink.data();
  p.softmax_scale = how.q_scale / std::sqrt(512.0f);
  p.o = how.in_place ? q.data() : o.data();
  p.block_rows = how.block_rows;
  Launch(on, p, layout.threads);
  Rows out;
  AddStepRows(step, (how.in_place ? q : o).Get(), how.heads * 512, &out);
  return out;
}

// On every variant, what RunSparseAttention gives on the reference.
void RequireAttention(
    const std::vector<Piece>& pieces, const Attention& how,
    const std::function<void(const Rows& got)>& check = [](const Rows&) {}) {
  const Rows want = RunSparseAttention(On::kReference, pieces, kPlain, how);
  ForEachVariant([&] {
    const Rows got = RunSparseAttention(On::kTested, pieces, kPlain, how);
    // Blocks are few rows.
    const double equal = std::min(Tested().equal_sums, how.block_rows > 0 ? 0.9999 : 1.0);
    RequireClose(got, want, equal, kAttentionStep);
    check(got);
  });
}

TEST_CASE("sparse_attention equals the reference") {
  Shard shard;
  for (const int ratio : {0, 4, 128}) {
    for (const int heads : {1, 2, 3, 4, 7, 8, 16, 20}) {
      if (heads > Tested().most_heads || !shard.HasNext()) continue;
      INFO("ratio " << ratio << ", heads " << heads);
      const Attention how{.ratio = ratio, .heads = heads};
      RequireAttention(kBatch, how, [&](const Rows& got) {
        Attention other = how;
        other.in_place = true;
        other.format = RowFormat::kBf16;
        RequireSame(RunSparseAttention(On::kTested, kBatch, kPadded, other), got);
      });
      if (heads != 4) {
        RequireAttention(kBatch, {.ratio = ratio, .heads = heads, .format = kFp8});
      }
    }
  }
  // A sink far above and far below all scores; scores that leave few rows any weight.
  for (const auto& [shift, scale] : {std::pair{60.0f, 1.0f}, {-1000.0f, 1.0f}, {0.0f, 12.0f}}) {
    if (!shard.HasNext()) continue;
    INFO("sink " << shift << ", scale " << scale);
    for (const RowFormat format : {RowFormat::kPacked, kFp8}) {
      RequireAttention(kBatch,
                       {.ratio = 4, .sink_shift = shift, .q_scale = scale, .format = format});
    }
  }
}

TEST_CASE("sparse_attention keeps the row rule, few rows and many") {
  Shard shard;
  for (const int ratio : {0, 4, 128}) {
    for (const int heads : {5, 40, 64}) {
      if (heads > Tested().most_heads || !shard.HasNext()) continue;
      for (const RowFormat format : {RowFormat::kPacked, kFp8}) {
        if (heads == 5 && format == kFp8 && ratio != 4) continue;
        INFO("ratio " << ratio << ", heads " << heads << ", " << RowFormatName(format));
        RequireRowRule([&](On on, const std::vector<Piece>& pieces, const Layout& layout) {
          return RunSparseAttention(
              on, pieces, layout, {.ratio = ratio, .heads = heads, .topk = 512, .format = format});
        });
      }
    }
  }
}

TEST_CASE("sparse_attention of blocks equals the reference and keeps the row rule") {
  const std::vector<Piece> blocks = {{0, 1, 5}, {1, 126, 5}, {2, 300, 16}, {3, 64, 1}};
  for (const int heads : {5, 64}) {  // few rows for the device, and many
    if (heads > Tested().most_heads) continue;
    const Attention how{.heads = heads, .block_rows = 16};
    RequireAttention(blocks, how, [&](const Rows& got) {
      Attention other = how;
      other.format = RowFormat::kBf16;
      RequireSame(RunSparseAttention(On::kTested, blocks, kPadded, other), got);
      for (const Piece& block : blocks) {
        RequireAmong(RunSparseAttention(On::kTested, {block}, kPlain, how), got);
      }
    });
    RequireAttention(blocks, {.heads = heads, .format = kFp8, .block_rows = 16});
  }
}

TEST_CASE("sparse_attention sees no window row below its sequence's first") {
  const std::vector<Piece> late = {{0, 1, 6}, {1, 100, 80}, {2, 1, 1}},
                           few = {{0, 1, 6}, {2, 1, 1}};
  const Attention how{.window_begin = 1};
  for (const std::vector<Piece>& pieces : {late, few}) {
    RequireAttention(pieces, how, [&](const Rows& got) {
      const Rows all = RunSparseAttention(On::kTested, pieces, kPlain, Attention{});
      REQUIRE_FALSE(SameBits(got.at({2, 1}), all.at({2, 1})));
      if (pieces.size() < 3) return;
      // Rows of the many, which share chunks, are what they are alone.
      for (const int64_t position : {100, 101, 127, 128, 129, 179}) {
        RequireAmong(RunSparseAttention(On::kTested, {{1, position, 1}}, kPadded, how), got);
      }
      // A window that the first row does not reach into is the same with and without that row.
      REQUIRE(SameBits(got.at({1, 128}), all.at({1, 128})));
      REQUIRE_FALSE(SameBits(got.at({1, 127}), all.at({1, 127})));
    });
  }
}

// Neighbouring queries share the rows of a chunk: what only one of them sees is not the other's.
TEST_CASE("sparse_attention keeps a broken row from queries that do not see it") {
  constexpr int64_t kFirst = 100, kBroken = 171;
  const std::vector<Piece> pieces = {{0, kFirst, 240}};
  for (const auto& [begin, format] :
       {std::pair<int64_t, RowFormat>{0, RowFormat::kPacked}, {64, kFp8}}) {
    const Attention sound{.ratio = 128, .window_begin = begin, .format = format};
    Attention broken = sound;
    broken.broken_position = kBroken;
    ForEachVariant([&] {
      const Rows want = RunSparseAttention(On::kTested, pieces, kPlain, sound);
      for (const auto& [key, row] : RunSparseAttention(On::kTested, pieces, kPlain, broken)) {
        INFO("position " << key.second);
        if (key.second < kBroken || key.second >= kBroken + 128) {
          REQUIRE(SameBits(row, want.at(key)));
        } else {
          for (const float v : row) REQUIRE_FALSE(std::isfinite(v));
        }
      }
    });
  }
}

TEST_CASE("attention operators equal the reference in long contexts") {
  const std::vector<Piece> pieces = {{0, 2046, 20}, {1, 700, 10}, {2, 0, 40}};
  const int32_t heads = std::min(16, Tested().most_heads);
  for (const RowFormat format : {RowFormat::kPacked, kFp8}) {
    INFO(RowFormatName(format));
    for (const int ratio : {0, 4, 128}) {
      INFO("ratio " << ratio);
      RequireAttention(pieces, {.ratio = ratio, .heads = heads, .topk = 512, .format = format});
    }
    // Fewer rows of weight, as trained heads have.
    RequireAttention(pieces,
                     {.ratio = 4, .heads = heads, .topk = 512, .q_scale = 5, .format = format});
    const auto prepare = [&](On on) {
      return RunQkvPrepare(on, pieces, kPlain, heads, 64, true, format);
    };
    const Prepared want = prepare(On::kReference);
    ForEachVariant([&] {
      const Prepared got = prepare(On::kTested);
      RequireClose(got.rows, want.rows, Tested().equal_others, StepOf(format));
      RequireClose(got.index_q, want.index_q, Tested().equal_others, kIndexStep);
    });
  }
}

// Every kernel of these operators once, for tools that slow them down a hundredfold: name the tag.
TEST_CASE("attention operators on few shapes", "[few]") {
  const std::vector<Piece> few = {{0, 126, 3}, {1, 2046, 2}}, many = {{0, 250, 17}, {1, 0, 48}};
  for (const std::vector<Piece>& pieces : {few, many}) {
    for (const RowFormat format : Tested().formats) {
      for (const int ratio : {4, 128}) RequireAttention(pieces, {.ratio = ratio, .format = format});
      const auto run = [&](On on, const Layout& layout) {
        return RunQkvPrepare(on, pieces, layout, 2, 3, true, format);
      };
      const Prepared got = run(On::kTested, kPadded), want = run(On::kReference, kPlain);
      RequireClose(got.rows, want.rows, Tested().equal_others, StepOf(format));
      RequireClose(got.index_q, want.index_q, Tested().equal_others, kIndexStep);
    }
  }
}

}  // namespace
}  // namespace dsv4::test
