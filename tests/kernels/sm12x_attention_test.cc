// SPDX-License-Identifier: Apache-2.0
// The CUDA backend's attention operators against the reference in published numerics, in batches of
// several sequences with shuffled blocks and padding; and the row rule, bit for bit: a row alone,
// in chunks and in a batch. index_score_topk is in sm12x_index_test.cc.
#include <algorithm>
#include <cmath>

#include "tests/kernels/cuda_step.h"
#include "tests/support/shard.h"

namespace dsv4::test {
namespace {

// Of outputs, at most 1 in 400 differs from the reference's (docs/adr/0022).
constexpr double kEqualShare = 1 - 1.0 / 400;

constexpr RowFormat kFp8 = RowFormat::kFp8PerTensor;
constexpr RowFormat kFormats[] = {RowFormat::kPacked, RowFormat::kBf16, kFp8};

// The most that a stored row or a query may be off by, of its largest element: a step of e4m3 under
// a scale that fits the run, or under one for all.
double StepOf(RowFormat format) { return format == kFp8 ? 0.125 : 0.07; }

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
// Where nothing of it may show.
const Layout kPlain{};
const Layout kPadded{.seed = 2, .padding_rows = 3, .padding_sequences = 2};
// Blocks that lie beyond 2^31 bytes from block 0.
const Layout kFar{.seed = 3, .first_block = 2200, .gap_bytes = int64_t{1} << 20, .blocks = 100};

using Run = std::function<Rows(On, const std::vector<Piece>&, const Layout&)>;

void RequireRowRule(const Run& run) {
  const Rows whole = run(On::kCuda, kBatch, kPlain);
  RequireSame(run(On::kCuda, kBatch, kPadded), whole);
  RequireSame(run(On::kCuda, kBatch, kFar), whole);
  for (const std::vector<Piece>& pieces : kSplits) {
    for (const Layout& layout : {kPlain, kPadded}) {
      for (const auto& [key, row] : run(On::kCuda, pieces, layout)) {
        INFO("sequence " << key.first << ", position or compressed block " << key.second);
        REQUIRE(SameBits(row, whole.at(key)));
      }
    }
  }
}

std::vector<uint16_t> NormWeights(uint64_t kind, int64_t count) {
  std::vector<uint16_t> norm;
  for (int64_t i = 0; i < count; ++i) norm.push_back(FloatToBf16(1 + Value(kind, 0, 0, i) / 4));
  return norm;
}

struct Prepared {
  Rows rows;     // queries, then the window's row
  Rows index_q;  // empty where there are none
};

Prepared RunQkvPrepare(On on, const std::vector<Piece>& pieces, const Layout& layout, int heads,
                       int index_heads, bool compressed, RowFormat format) {
  CudaStep step(on, pieces, layout);
  CudaTensor q(step, 11, heads * 512), kv(step, 12, 512);
  CudaArray<uint16_t> norm(step, NormWeights(13, 512));
  CudaTensor index_q(step, 21, std::max(index_heads, 1) * 128);
  CudaPool window(step, 64, 512, format);
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
  LaunchStep(step, kSm12xQkvPrepare, p);
  window.Finish();
  Prepared prepared;
  if (index_heads > 0) index_q.Read(prepared.index_q);
  Rows& out = prepared.rows;
  q.Read(out);
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

Rows RunIndexQueries(On on, const std::vector<Piece>& pieces, const Layout& layout, int heads) {
  return RunQkvPrepare(on, pieces, layout, 1, heads, true, RowFormat::kPacked).index_q;
}

TEST_CASE("sm12x qkv_prepare equals the reference and keeps the row rule") {
  for (const bool compressed : {false, true}) {
    for (const RowFormat format : kFormats) {
      const auto run = [&](On on) {
        return RunQkvPrepare(on, kBatch, kPlain, 4, 8, compressed, format);
      };
      const Prepared got = run(On::kCuda), want = run(On::kReference);
      RequireClose(got.rows, want.rows, kEqualShare, StepOf(format));
      RequireClose(got.index_q, want.index_q, kEqualShare, 0.5);
    }
  }
  RequireRowRule([](On on, const std::vector<Piece>& pieces, const Layout& layout) {
    return RunQkvPrepare(on, pieces, layout, 3, 3, true, RowFormat::kPacked).rows;
  });
  RequireRowRule([](On on, const std::vector<Piece>& pieces, const Layout& layout) {
    return RunQkvPrepare(on, pieces, layout, 3, 3, true, kFp8).rows;
  });
  RequireRowRule([](On on, const std::vector<Piece>& pieces, const Layout& layout) {
    return RunIndexQueries(on, pieces, layout, 3);
  });
}

// What came from a broken activation must not look sound again.
TEST_CASE("sm12x attention over a row with a NaN or an infinity gives no sound number") {
  for (const RowFormat format : kFormats) {
    for (const uint16_t broken : {0x7fc0, 0xffc0, 0x7f80, 0xff80}) {
      CudaStep step(On::kCuda, {{0, 130, 1}}, kPlain);
      CudaPool window(step, 64, 512, format);
      const SequenceRows& s = step.host(0);
      window.Fill(s.window_blocks, 41, 0, 3, 130);
      CudaTensor q(step, 11, 512);
      std::vector<uint16_t> row(512, FloatToBf16(1));
      row[77] = broken;
      DeviceCopy<uint16_t> kv(row);
      CudaArray<uint16_t> norm(step, NormWeights(13, 512));
      QkvPrepareParams p;
      p.step = step.Rows();
      p.heads = 1;
      p.q = q.data();
      p.kv = kv.data();
      p.kv_norm = norm.data();
      p.eps = 1e-6f;
      p.window = window.For(step);
      ReplayOnCuda(kSm12xQkvPrepare, p);
      DeviceCopy<float> sink(std::vector<float>{0.0f});
      SparseAttentionParams attend;
      attend.step = p.step;
      attend.heads = 1;
      attend.q = attend.o = q.data();
      attend.window = p.window;
      attend.sink = sink.data();
      attend.softmax_scale = 0.04f;
      ReplayOnCuda(kSm12xSparseAttention, attend);
      Rows out;
      q.Read(out);
      for (const float v : out.at({0, 130})) REQUIRE_FALSE(std::isfinite(v));
    }
  }
}

// Positions at and around the ends of compressed blocks, where the tests save states inside steps.
constexpr int64_t kSavePositions[] = {1,   2,   3,   4,    5,    7,    8,    9,    63,  64,  126,
                                      127, 128, 129, 130,  255,  256,  257,  259,  260, 261, 299,
                                      511, 512, 513, 2047, 2048, 2049, 2050, 2051, 2052};

// Runs `steps` one after the other, each step's last states the next one's old states; gives the
// rows of all compressed blocks (key: sequence, compressed block), the last states (key: sequence,
// -1) and those saved after kSavePositions (key: sequence, -1 - position).
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
  CompressedRows out;
  std::map<int, std::vector<float>> states;
  for (const std::vector<Piece>& pieces : steps) {
    ++layout.seed;
    CudaStep step(on, pieces, layout);
    CudaPool pool(step, kCompressedKvBlockTokens / ratio, dim,
                  index_keys ? RowFormat::kIndexFp4 : format);
    CudaArray<float> ape(step, ape_values);
    CudaArray<uint16_t> norm(step, NormWeights(32, dim));
    p.ape = ape.data();
    p.norm = norm.data();
    std::vector<float> k_values, z_values;
    for (int64_t r = 0; r < step.rows(); ++r) {
      for (int64_t i = 0; i < width; ++i) {
        const bool padding = r >= step.real_rows();
        const float z = padding ? NAN : Value(34, step.sequence(r), step.position(r), i);
        const float k = padding ? NAN : Value(33, step.sequence(r), step.position(r), i);
        k_values.push_back(k + 0.01f * z);  // not bf16 numbers
        z_values.push_back(3 * z);
      }
    }
    CudaArray<float> k(step, k_values), z(step, z_values);
    p.k = k.data();
    p.z = z.data();
    // All states of the step lie one after the other: of each sequence, the old one and the saved
    // ones.
    std::vector<std::vector<int64_t>> save_rows;
    std::vector<float> memory;
    constexpr uint32_t kPoisonWord = 0xfdfdfdfdu;
    const auto poison = std::bit_cast<float>(kPoisonWord);
    for (const Piece& piece : pieces) {
      std::vector<int64_t>& rows = save_rows.emplace_back();
      for (const int64_t position : kSavePositions) {
        const int64_t row = position - piece.first;
        if (row > 0 && row < piece.rows) rows.push_back(row);
      }
      rows.push_back(piece.rows);
      const size_t begin = memory.size();
      memory.resize(begin + (1 + rows.size()) * static_cast<size_t>(slot), poison);
      const std::vector<float>& old = states[piece.sequence];
      std::copy(old.begin(), old.end(), memory.begin() + static_cast<int64_t>(begin) + kOffset);
    }
    const std::vector<float> before = memory;
    CudaArray<float> state_memory(step, memory);
    p.states = {reinterpret_cast<std::byte*>(state_memory.data() + kOffset), slot * 4};
    int32_t next = 0;
    std::deque<std::vector<StateToSave>> all_saved;
    for (size_t i = 0; i < pieces.size(); ++i) {
      const int32_t in = next++;
      std::vector<StateToSave>& saved_states = all_saved.emplace_back();
      for (const int64_t row : save_rows[i])
        saved_states.push_back({static_cast<int32_t>(row), next++});
      if (on == On::kReference) {
        step.host(i).state_slot = in;
        step.host(i).saved_states = saved_states.data();
        step.host(i).saved_state_count = static_cast<int32_t>(saved_states.size());
      } else {
        step.device_states().push_back({in, saved_states});
      }
    }
    p.step = step.Rows();
    p.rows = pool.For(step);
    LaunchStep(step, kSm12xCompressKv, p);
    pool.Finish();
    const std::vector<float>& after = state_memory.Finish();
    int64_t at = 0;
    for (size_t i = 0; i < pieces.size(); ++i) {
      const SequenceRows& s = step.host(i);
      const int64_t end = s.first_position + s.rows;
      for (int64_t g = s.first_position / ratio; g < VisibleCompressedBlocks(end - 1, ratio); ++g) {
        pool.Read(s.compressed_kv_blocks, g, out.rows[{pieces[i].sequence, g}]);
        pool.Erase(s.compressed_kv_blocks, g);
      }
      // The old state, and what lies before a state, stays as it was.
      REQUIRE(std::memcmp(after.data() + at, before.data() + at, static_cast<size_t>(slot) * 4) ==
              0);
      at += slot;
      for (const int64_t row : save_rows[i]) {
        REQUIRE(std::memcmp(after.data() + at, before.data() + at, kOffset * 4) == 0);
        const std::vector<float> values(after.begin() + at + kOffset, after.begin() + at + slot);
        at += slot;
        const int64_t position = s.first_position + row;
        if (std::count(std::begin(kSavePositions), std::end(kSavePositions), position) != 0) {
          out.states[{pieces[i].sequence, -1 - position}] = values;
        }
        out.states[{pieces[i].sequence, -1}] = states[pieces[i].sequence] = values;
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
  RequireClose(got.rows, want.rows, kEqualShare, index_keys ? 0.5 : StepOf(format));
  RequireClose(got.states, want.states, 0, 1e-5);
}

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

TEST_CASE("sm12x compress_kv equals the reference; chunks and saved states change no bit") {
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
  for (int64_t t = 0; t < 140; ++t) {
    auto& step = decode.emplace_back();
    for (const Piece& piece : whole) {
      if (t < piece.rows) step.push_back({piece.sequence, t, 1});
    }
  }
  decode.push_back({{0, 140, 160}, {4, 140, 121}});
  for (const auto& [ratio, index_keys] : {std::pair{4, false}, {4, true}, {128, false}}) {
    INFO("ratio " << ratio << ", index keys " << index_keys);
    const CompressedRows one = RunCompressKv(On::kCuda, {whole}, ratio, index_keys, kPlain);
    for (const auto& [key, row] : one.states) REQUIRE(NotFinite(row) == "");
    RequireSameRows(RunCompressKv(On::kCuda, {whole}, ratio, index_keys, kPadded), one);
    RequireSameRows(RunCompressKv(On::kCuda, {whole}, ratio, index_keys, kFar), one);
    RequireSameRows(RunCompressKv(On::kCuda, chunks, ratio, index_keys, kPadded), one);
    RequireSameRows(RunCompressKv(On::kCuda, decode, ratio, index_keys, kPlain), one);
    for (const RowFormat format : kFormats) {
      if (index_keys && format == kFp8) continue;
      const CompressedRows got =
          RunCompressKv(On::kCuda, {whole}, ratio, index_keys, kPlain, format);
      const CompressedRows want =
          RunCompressKv(On::kReference, {whole}, ratio, index_keys, kPlain, format);
      RequireCloseRows(got, want, index_keys, format);
      if (format == kFp8) {
        RequireSameRows(RunCompressKv(On::kCuda, chunks, ratio, false, kPadded, kFp8), got);
      }
    }
  }
}

TEST_CASE("sm12x compress_kv changes no bit where long chunks and decode steps end") {
  for (const auto& [ratio, index_keys] : {std::pair{4, false}, {4, true}, {128, false}}) {
    INFO("ratio " << ratio << ", index keys " << index_keys);
    const auto run = [&, ratio = ratio, index_keys = index_keys](
                         On on, const std::vector<int64_t>& ends, const Layout& layout) {
      return RunCompressKv(on, StepsTo(ends), ratio, index_keys, layout);
    };
    const CompressedRows one = run(On::kCuda, {2056}, kPlain);
    RequireCloseRows(one, run(On::kReference, {2056}, kPlain), index_keys);
    // Single rows around each border, then chunks to and from each of them.
    for (const std::vector<int64_t>& ends :
         {std::vector<int64_t>{126, 127, 128, 129,  130,  254,  255,  256,  257,  258,  510,  511,
                               512, 513, 514, 2046, 2047, 2048, 2049, 2050, 2051, 2052, 2053, 2056},
          {128, 255, 257, 512, 2047, 2049, 2051, 2056},
          {127, 129, 256, 511, 513, 2048, 2050, 2052, 2056}}) {
      RequireSameRows(run(On::kCuda, ends, kPadded), one);
    }
  }
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
  CudaStep step(on, pieces, layout);
  CudaPool window(step, 64, 512, how.format);
  CudaPool compressed_blocks(step, how.ratio == 0 ? 1 : kCompressedKvBlockTokens / how.ratio, 512,
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
  CudaTensor q(step, 43, how.heads * 512), o(step, 0, how.heads * 512);
  std::vector<float> sinks;
  for (int h = 0; h < how.heads; ++h) sinks.push_back(Value(44, 0, 0, h) + how.sink_shift);
  CudaArray<float> sink(step, sinks);
  CudaArray<int32_t> selected(step, selections);
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
  LaunchStep(step, kSm12xSparseAttention, p);
  Rows out;
  (how.in_place ? q : o).Read(out);
  return out;
}

TEST_CASE("sm12x sparse_attention equals the reference") {
  Shard shard;
  for (const int ratio : {0, 4, 128}) {
    for (const int heads : {1, 4, 16, 20}) {
      if (!shard.HasNext()) continue;
      INFO("ratio " << ratio << ", heads " << heads);
      const Attention how{.ratio = ratio, .heads = heads};
      const Rows got = RunSparseAttention(On::kCuda, kBatch, kPlain, how);
      RequireClose(got, RunSparseAttention(On::kReference, kBatch, kPlain, how), kEqualShare, 0.01);
      Attention other = how;
      other.in_place = true;
      other.format = RowFormat::kBf16;
      RequireSame(RunSparseAttention(On::kCuda, kBatch, kPadded, other), got);
      if (heads == 4) continue;
      const Attention fp8{.ratio = ratio, .heads = heads, .format = kFp8};
      RequireClose(RunSparseAttention(On::kCuda, kBatch, kPadded, fp8),
                   RunSparseAttention(On::kReference, kBatch, kPlain, fp8), kEqualShare, 0.01);
    }
  }
  // A sink far above and far below all scores; scores that leave few rows any weight.
  for (const auto& [shift, scale] : {std::pair{60.0f, 1.0f}, {-1000.0f, 1.0f}, {0.0f, 12.0f}}) {
    if (!shard.HasNext()) continue;
    INFO("sink " << shift << ", scale " << scale);
    for (const RowFormat format : {RowFormat::kPacked, kFp8}) {
      const Attention how{.ratio = 4, .sink_shift = shift, .q_scale = scale, .format = format};
      RequireClose(RunSparseAttention(On::kCuda, kBatch, kPlain, how),
                   RunSparseAttention(On::kReference, kBatch, kPlain, how), kEqualShare, 0.01);
    }
  }
}

TEST_CASE("sm12x sparse_attention keeps the row rule, few rows and many") {
  Shard shard;
  for (const int ratio : {0, 4, 128}) {
    for (const int heads : {5, 40, 64}) {
      if (!shard.HasNext()) continue;
      for (const RowFormat format : {RowFormat::kPacked, kFp8}) {
        if (heads == 5 && format == kFp8) continue;
        INFO("ratio " << ratio << ", heads " << heads << ", " << RowFormatName(format));
        RequireRowRule([&](On on, const std::vector<Piece>& pieces, const Layout& layout) {
          return RunSparseAttention(
              on, pieces, layout, {.ratio = ratio, .heads = heads, .topk = 512, .format = format});
        });
      }
    }
  }
}

TEST_CASE("sm12x sparse_attention of blocks equals the reference and keeps the row rule") {
  const std::vector<Piece> blocks = {{0, 1, 5}, {1, 126, 5}, {2, 300, 16}, {3, 64, 1}};
  for (const int heads : {4, 64}) {  // few rows for the device, and many
    const Attention how{.heads = heads, .block_rows = 16};
    const Rows got = RunSparseAttention(On::kCuda, blocks, kPlain, how);
    RequireClose(got, RunSparseAttention(On::kReference, blocks, kPlain, how), kEqualShare, 0.01);
    Attention other = how;
    other.format = RowFormat::kBf16;
    RequireSame(RunSparseAttention(On::kCuda, blocks, kPadded, other), got);
    Attention fp8 = how;
    fp8.format = kFp8;
    RequireClose(RunSparseAttention(On::kCuda, blocks, kPlain, fp8),
                 RunSparseAttention(On::kReference, blocks, kPlain, fp8), kEqualShare, 0.01);
    for (const Piece& block : blocks) {
      for (const auto& [key, row] : RunSparseAttention(On::kCuda, {block}, kPlain, how)) {
        REQUIRE(SameBits(row, got.at(key)));
      }
    }
  }
}

TEST_CASE("sm12x sparse_attention sees no window row below its sequence's first") {
  const std::vector<Piece> late = {{0, 1, 6}, {1, 100, 80}, {2, 1, 1}},
                           few = {{0, 1, 6}, {2, 1, 1}};
  const Attention how{.window_begin = 1};
  for (const std::vector<Piece>& pieces : {late, few}) {
    const Rows got = RunSparseAttention(On::kCuda, pieces, kPlain, how);
    RequireClose(got, RunSparseAttention(On::kReference, pieces, kPlain, how), kEqualShare, 0.01);
    const Rows all = RunSparseAttention(On::kCuda, pieces, kPlain, Attention{});
    REQUIRE_FALSE(SameBits(got.at({2, 1}), all.at({2, 1})));
    if (pieces.size() < 3) continue;
    // Rows of the many, which share chunks, are what they are alone.
    for (const int64_t position : {100, 101, 127, 128, 129, 179}) {
      const Rows alone = RunSparseAttention(On::kCuda, {{1, position, 1}}, kPlain, how);
      REQUIRE(SameBits(got.at({1, position}), alone.at({1, position})));
    }
    // A window that the first row does not reach into is the same with and without that row.
    REQUIRE(SameBits(got.at({1, 128}), all.at({1, 128})));
    REQUIRE_FALSE(SameBits(got.at({1, 127}), all.at({1, 127})));
  }
}

// Neighbouring queries share the rows of a chunk: what only one of them sees is not the other's.
TEST_CASE("sm12x sparse_attention keeps a broken row from queries that do not see it") {
  constexpr int64_t kFirst = 100, kBroken = 171;
  const std::vector<Piece> pieces = {{0, kFirst, 240}};
  for (const auto& [begin, format] :
       {std::pair<int64_t, RowFormat>{0, RowFormat::kPacked}, {64, kFp8}}) {
    const Attention sound{.ratio = 128, .window_begin = begin, .format = format};
    Attention broken = sound;
    broken.broken_position = kBroken;
    const Rows want = RunSparseAttention(On::kCuda, pieces, kPlain, sound);
    for (const auto& [key, row] : RunSparseAttention(On::kCuda, pieces, kPlain, broken)) {
      INFO("position " << key.second);
      if (key.second < kBroken || key.second >= kBroken + 128) {
        REQUIRE(SameBits(row, want.at(key)));
      } else {
        for (const float v : row) REQUIRE_FALSE(std::isfinite(v));
      }
    }
  }
}

// How many of all values differ.
void RequireSeldomApart(const char* what, const Rows& got, const Rows& want) {
  int64_t apart = 0, count = 0;
  for (const auto& [key, row] : want) {
    const std::vector<float>& other = got.at(key);
    REQUIRE(other.size() == row.size());
    count += static_cast<int64_t>(row.size());
    for (size_t i = 0; i < row.size(); ++i) apart += row[i] != other[i];
  }
  WARN(what << ": " << apart << " of " << count << " values differ from the reference's");
  REQUIRE(static_cast<double>(apart) <= (1 - kEqualShare) * static_cast<double>(count));
}

TEST_CASE("sm12x attention operators seldom round apart from the reference") {
  const std::vector<Piece> pieces = {{0, 2046, 20}, {1, 700, 10}, {2, 0, 40}};
  const auto compare = [&](const char* what, const Run& run) {
    RequireSeldomApart(what, run(On::kCuda, pieces, kPlain), run(On::kReference, pieces, kPlain));
  };
  for (const int ratio : {0, 4, 128}) {
    INFO("ratio " << ratio);
    compare("sparse_attention", [&](On on, const std::vector<Piece>& p, const Layout& layout) {
      return RunSparseAttention(on, p, layout, {.ratio = ratio, .heads = 16, .topk = 512});
    });
    compare("sparse_attention, fp8 rows",
            [&](On on, const std::vector<Piece>& p, const Layout& layout) {
              return RunSparseAttention(on, p, layout,
                                        {.ratio = ratio, .heads = 16, .topk = 512, .format = kFp8});
            });
  }
  compare("sparse_attention, fp8 rows, peaked", [](On on, const std::vector<Piece>& p,
                                                   const Layout& layout) {
    return RunSparseAttention(on, p, layout,
                              {.ratio = 4, .heads = 16, .topk = 512, .q_scale = 5, .format = kFp8});
  });
  compare("qkv_prepare, fp8 rows", [](On on, const std::vector<Piece>& p, const Layout& layout) {
    return RunQkvPrepare(on, p, layout, 16, 0, true, kFp8).rows;
  });
  // Fewer rows of weight, as trained heads have.
  compare("sparse_attention, peaked", [](On on, const std::vector<Piece>& p, const Layout& layout) {
    return RunSparseAttention(on, p, layout, {.ratio = 4, .heads = 16, .topk = 512, .q_scale = 5});
  });
  compare("qkv_prepare", [](On on, const std::vector<Piece>& p, const Layout& layout) {
    return RunQkvPrepare(on, p, layout, 16, 0, true, RowFormat::kPacked).rows;
  });
  compare("index queries", [](On on, const std::vector<Piece>& p, const Layout& layout) {
    return RunIndexQueries(on, p, layout, 64);
  });
  for (const auto& [ratio, index_keys] : {std::pair{4, false}, {4, true}, {128, false}}) {
    INFO("ratio " << ratio << ", index keys " << index_keys);
    const std::vector<std::vector<Piece>> whole = {{{0, 0, 2000}}};
    RequireSeldomApart("compress_kv",
                       RunCompressKv(On::kCuda, whole, ratio, index_keys, kPlain).rows,
                       RunCompressKv(On::kReference, whole, ratio, index_keys, kPlain).rows);
  }
}

// Every kernel of these operators once, for tools that slow them down a hundredfold: name the tag.
TEST_CASE("sm12x attention operators on few shapes", "[few]") {
  const std::vector<Piece> few = {{0, 126, 3}, {1, 2046, 2}}, many = {{0, 250, 17}, {1, 0, 48}};
  for (const std::vector<Piece>& pieces : {few, many}) {
    const auto compare = [&](double share, double tolerance, const Run& run) {
      RequireClose(run(On::kCuda, pieces, kPadded), run(On::kReference, pieces, kPlain), share,
                   tolerance);
    };
    for (const RowFormat format : kFormats) {
      for (const int ratio : {4, 128}) {
        compare(kEqualShare, 0.01, [&](On on, const std::vector<Piece>& p, const Layout& layout) {
          return RunSparseAttention(on, p, layout, {.ratio = ratio, .format = format});
        });
      }
      compare(kEqualShare, StepOf(format),
              [&](On on, const std::vector<Piece>& p, const Layout& layout) {
                return RunQkvPrepare(on, p, layout, 2, 3, true, format).rows;
              });
    }
    compare(kEqualShare, 0.5, [](On on, const std::vector<Piece>& p, const Layout& layout) {
      return RunIndexQueries(on, p, layout, 3);
    });
  }
  for (const auto& [ratio, index_keys] : {std::pair{4, false}, {4, true}, {128, false}}) {
    const std::vector<std::vector<Piece>> steps = {{{0, 0, 127}, {1, 0, 5}}, {{0, 127, 2}}};
    RequireClose(RunCompressKv(On::kCuda, steps, ratio, index_keys, kPadded).rows,
                 RunCompressKv(On::kReference, steps, ratio, index_keys, kPlain).rows, kEqualShare,
                 0.5);
  }
}

}  // namespace
}  // namespace dsv4::test
