// SPDX-License-Identifier: Apache-2.0
// The reference's attention operators against the formulas of their contracts, written out in
// double without blocks, tiles or online sums; and the split of a sequence into steps.
#include <map>
#include <numeric>

#include "tests/kernels/step_fixture.h"
#include "tests/support/worst_element.h"

namespace dsv4 {
namespace {

using test::LaunchKernel;
using test::RandomFloats;
using test::RandomNorm;
using test::RandomValue;
using test::StepRow;
using test::TestStep;
using Floats = std::vector<float>;
using Doubles = std::vector<double>;

double Distance(const float* got, const Doubles& expected) {
  return test::RelativeDistance(absl::MakeConstSpan(got, expected.size()), expected);
}

// Rotates pairs of the last 64 of `row` by position * frequency.
void Rotate(Doubles& row, int64_t position, const float* frequencies, double sign) {
  double* tail = row.data() + row.size() - 64;
  for (int i = 0; i < 32; ++i) {
    const double angle = static_cast<float>(position) * frequencies[i];
    const double c = std::cos(angle), s = sign * std::sin(angle);
    const double a = tail[2 * i], b = tail[2 * i + 1];
    tail[2 * i] = a * c - b * s;
    tail[2 * i + 1] = a * s + b * c;
  }
}

void Normalise(Doubles& row, const std::vector<uint16_t>* weight) {
  double sum = 0;
  for (const double value : row) sum += value * value;
  const double inverse = 1 / std::sqrt(sum / static_cast<double>(row.size()) + 1e-6);
  for (size_t d = 0; d < row.size(); ++d) {
    row[d] *= inverse * (weight == nullptr ? 1 : double{Bf16ToFloat((*weight)[d])});
  }
}

const float* WindowFrequencies() {
  static float list[kRopePairs];
  FillRopeFrequencies(10000, 0, 0, 32, 1, list);
  return list;
}
const float* CompressedFrequencies() {
  static float list[kRopePairs];
  FillRopeFrequencies(160000, 16, 1024, 32, 1, list);
  return list;
}

// `count` rows of sequence `number` from `position` on.
std::vector<StepRow> Run(uint64_t number, int64_t position, int64_t count) {
  std::vector<StepRow> rows;
  for (int64_t i = 0; i < count; ++i) rows.push_back({number, position + i});
  return rows;
}

std::vector<StepRow> MixedRows() {
  std::vector<StepRow> rows = Run(1, 125, 5);
  for (const StepRow& row : Run(2, 0, 6)) rows.push_back(row);
  for (const StepRow& row : Run(3, 1030, 3)) rows.push_back(row);
  return rows;
}

TEST_CASE("qkv_prepare is norm, rotation and insertion") {
  TestStep step(MixedRows(), 1100, 3);
  const int64_t rows = step.rows().rows, heads = 2;
  const Floats q = RandomFloats(1, rows * heads * 512), kv = RandomFloats(2, rows * 512);
  const std::vector<uint16_t> norm = RandomNorm(3, 512);
  for (const bool compressed : {false, true}) {
    Floats out = q;
    QkvPrepareParams params;
    params.step = &step.rows();
    params.heads = heads;
    params.q = out.data();
    params.kv = kv.data();
    params.kv_norm = norm.data();
    params.eps = 1e-6f;
    params.compressed_rope = compressed;
    params.window = step.MakeWindowPool();
    LaunchKernel(ReferenceManifest(), params, {});
    const float* frequencies = compressed ? CompressedFrequencies() : WindowFrequencies();
    for (int64_t t = 0; t < rows; ++t) {
      const int64_t position = step.rows().positions[t];
      CAPTURE(compressed, t, position);
      for (int64_t h = 0; h < heads; ++h) {
        const auto begin = q.begin() + (t * heads + h) * 512;
        Doubles expected(begin, begin + 512);
        Normalise(expected, nullptr);
        Rotate(expected, position, frequencies, 1);
        REQUIRE(Distance(&out[static_cast<size_t>((t * heads + h) * 512)], expected) < 3e-7);
      }
      Doubles expected(kv.begin() + t * 512, kv.begin() + (t + 1) * 512);
      Normalise(expected, &norm);
      Rotate(expected, position, frequencies, 1);
      REQUIRE(Distance(step.WindowRow(params.window, t, position), expected) < 3e-7);
    }
  }
}

TEST_CASE("sparse_attention sees its window and its compressed blocks, and no other row") {
  // With `block`, the rows of a sequence see the 128 before the block and all of it.
  const auto [ratio, block] =
      GENERATE(std::pair<int64_t, bool>{0, false}, std::pair<int64_t, bool>{0, true},
               std::pair<int64_t, bool>{4, false}, std::pair<int64_t, bool>{128, false});
  TestStep step(MixedRows(), 1100, 4);
  const int64_t rows = step.rows().rows, heads = 18, topk = 30;
  const Floats q = RandomFloats(5, rows * heads * 512), sink = RandomFloats(6, heads, 3);
  std::vector<int32_t> selected;
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t i = 0; i < topk; ++i) {
      const bool visible = 7 * i < VisibleCompressedBlocks(step.rows().positions[t], 4);
      selected.push_back(visible ? static_cast<int32_t>(7 * i) : -1);
    }
  }
  Floats o = q;
  SparseAttentionParams params;
  params.step = &step.rows();
  params.heads = static_cast<int32_t>(heads);
  params.ratio = static_cast<int32_t>(ratio);
  params.q = o.data();  // in place
  params.window = step.MakeWindowPool();
  step.FillWindow(params.window, 7);
  // Two windows begin late: at a row before the step, and at the step's first row.
  step.sequences()[0].window_begin = 100;
  step.sequences()[2].window_begin = 1030;
  for (const auto& [t, position] : {std::pair<int64_t, int64_t>{0, 99}, {11, 1029}}) {
    std::fill_n(step.WindowRow(params.window, t, position), 512, NAN);
  }
  if (ratio != 0) {
    params.compressed = step.MakeCompressedPool(ratio, 512);
    step.FillCompressedRows(params.compressed, ratio, 512, 8);
  }
  params.selected = selected.data();
  params.topk = static_cast<int32_t>(topk);
  params.sink = sink.data();
  params.softmax_scale = 0.06f;
  params.o = o.data();
  params.block_rows = block ? static_cast<int32_t>(rows) : 0;
  LaunchKernel(ReferenceManifest(), params, {.threads = 2});

  for (int64_t t = 0; t < rows; ++t) {
    const int64_t position = step.rows().positions[t];
    std::vector<const float*> visible;
    const SequenceRows& sequence = step.rows().sequences[step.rows().sequence_of[t]];
    const int64_t begin = sequence.window_begin;
    const int64_t oldest = block ? sequence.first_position - 128 : position - 127;
    const int64_t last = block ? sequence.first_position + sequence.rows - 1 : position;
    for (int64_t p = std::max(begin, oldest); p <= last; ++p) {
      visible.push_back(step.WindowRow(params.window, t, p));
    }
    for (int64_t i = 0; ratio == 4 && i < topk; ++i) {
      const int32_t compressed_block = selected[static_cast<size_t>(t * topk + i)];
      if (compressed_block >= 0)
        visible.push_back(step.CompressedRow(params.compressed, t, compressed_block, 4));
    }
    for (int64_t compressed_block = 0; ratio == 128 && compressed_block < (position + 1) / 128;
         ++compressed_block) {
      visible.push_back(step.CompressedRow(params.compressed, t, compressed_block, 128));
    }
    for (int64_t h = 0; h < heads; ++h) {
      CAPTURE(params.ratio, params.block_rows, t, h);
      Doubles expected(512);
      double denominator = std::exp(double{sink[static_cast<size_t>(h)]});
      for (const float* row : visible) {
        double dot = 0;
        for (int64_t d = 0; d < 512; ++d) {
          dot += double{row[d]} * q[static_cast<size_t>((t * heads + h) * 512 + d)];
        }
        const double weight = std::exp(dot * double{0.06f});
        denominator += weight;
        for (int64_t d = 0; d < 512; ++d) expected[static_cast<size_t>(d)] += weight * row[d];
      }
      for (double& value : expected) value /= denominator;
      Rotate(expected, position, ratio == 0 ? WindowFrequencies() : CompressedFrequencies(), -1);
      REQUIRE(Distance(&o[static_cast<size_t>((t * heads + h) * 512)], expected) < 1e-6);
    }
  }
}

TEST_CASE("index_score_topk selects the highest scores, ascending") {
  TestStep step(MixedRows(), 1100, 9);
  const int64_t rows = step.rows().rows, heads = 18;
  const int64_t topk = GENERATE(1, 31, 32, 300);
  const Floats q = RandomFloats(10, rows * heads * 128), weights = RandomFloats(11, rows * heads);
  std::vector<int32_t> selected(static_cast<size_t>(rows * topk), 12345);
  IndexScoreTopkParams params;
  params.step = &step.rows();
  params.heads = static_cast<int32_t>(heads);
  params.topk = static_cast<int32_t>(topk);
  params.q = q.data();
  params.weights = weights.data();
  params.weight_scale = 0.03f;
  params.keys = step.MakeCompressedPool(4, 128);
  params.selected = selected.data();
  step.FillCompressedRows(params.keys, 4, 128, 12);
  LaunchKernel(ReferenceManifest(), params, {.threads = 2});
  for (int64_t t = 0; t < rows; ++t) {
    const int64_t visible = (step.rows().positions[t] + 1) / 4;
    Doubles scores;
    for (int64_t compressed_block = 0; compressed_block < visible; ++compressed_block) {
      const float* key = step.CompressedRow(params.keys, t, compressed_block, 4);
      double score = 0;
      for (int64_t h = 0; h < heads; ++h) {
        double dot = 0;
        for (int64_t d = 0; d < 128; ++d) {
          dot += double{key[d]} * q[static_cast<size_t>((t * heads + h) * 128 + d)];
        }
        score += weights[static_cast<size_t>(t * heads + h)] * std::max(0.0, dot);
      }
      scores.push_back(score);
    }
    std::vector<int32_t> order(scores.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
    });
    order.resize(std::min(order.size(), static_cast<size_t>(topk)));
    std::sort(order.begin(), order.end());
    order.resize(static_cast<size_t>(topk), -1);
    CAPTURE(t, visible, topk);
    REQUIRE(std::vector<int32_t>(selected.begin() + t * topk, selected.begin() + (t + 1) * topk) ==
            order);
  }
}

TEST_CASE("index_score_topk breaks ties towards the lowest compressed block and survives NaN") {
  TestStep step(Run(1, 400, 1), 500, 13);
  const bool broken = GENERATE(false, true);
  Floats q(128, 1.0f), weights{1.0f};
  std::vector<int32_t> selected(8);
  IndexScoreTopkParams params;
  params.step = &step.rows();
  params.heads = 1;
  params.topk = 8;
  params.q = q.data();
  params.weights = weights.data();
  params.weight_scale = 1;
  params.keys = step.MakeCompressedPool(4, 128);
  params.selected = selected.data();
  // 100 compressed blocks: 40 and 90 score 2, all others 1 (or, broken, NaN).
  for (int64_t compressed_block = 0; compressed_block < 100; ++compressed_block) {
    const float value = compressed_block == 40 || compressed_block == 90 ? 2.0f
                        : broken                                         ? NAN
                                                                         : 1.0f;
    std::fill_n(step.CompressedRow(params.keys, 0, compressed_block, 4), 128, value);
  }
  LaunchKernel(ReferenceManifest(), params, {});
  CHECK(selected == std::vector<int32_t>{0, 1, 2, 3, 4, 5, 40, 90});
}

struct CompressorCase {
  int32_t ratio;
  bool index_keys;
};

// The input of a compressor: rows of one long sequence, a function of the position.
struct CompressorInput {
  explicit CompressorInput(CompressorCase kind) {
    params.ratio = kind.ratio;
    params.index_keys = kind.index_keys;
    dim = params.dim();
    width = params.width();
    ape = RandomFloats(20, kind.ratio * width, 2);
    norm = RandomNorm(21, dim);
    params.ape = ape.data();
    params.norm = norm.data();
    params.eps = 1e-6f;
    state_floats = CompressorStateFloats(kind.ratio, dim);
  }

  float K(int64_t position, int64_t i) const {
    return RandomValue(22, static_cast<uint64_t>(position * width + i));
  }
  float Z(int64_t position, int64_t i) const {
    return 4 * RandomValue(23, static_cast<uint64_t>(position * width + i));
  }

  // Runs the sequence's positions [0, end) in steps that begin at `starts`, with rows of another
  // sequence, and returns the compressed blocks' rows and then the state after the last step. The
  // keys of `written` are positions: their values become the states written there, inside a step.
  Floats Compress(int64_t end, const std::vector<int64_t>& starts,
                  const test::LaunchOptions& options, bool with_other_sequence,
                  std::map<int64_t, Floats>* written = nullptr) const {
    std::map<int64_t, Floats> compressed_blocks;
    const auto state_size = static_cast<size_t>(state_floats) + 32 + 8;
    Floats state(state_size, NAN);
    for (size_t i = 0; i < starts.size(); ++i) {
      const int64_t first = starts[i], last = i + 1 < starts.size() ? starts[i + 1] : end;
      std::vector<StepRow> rows;
      if (with_other_sequence) rows = Run(9, 6, 3);
      for (const StepRow& row : Run(1, first, last - first)) rows.push_back(row);
      TestStep step(rows, end + 256, 100 + i);
      Floats k, z;
      for (const StepRow& row : rows) {
        for (int64_t d = 0; d < width; ++d) {
          k.push_back(K(row.position, d));
          z.push_back(Z(row.position, d));
        }
      }
      // Slots of states that hold other things too: the old one, the other sequence's two, the new
      // one, and those inside the step.
      enum : int32_t { kOld, kOther, kOtherNew, kNew, kInside };
      const size_t inside = written != nullptr ? written->size() : 0;
      Floats slots((kInside + inside) * state_size, NAN);
      const auto slot = [&](int32_t number) { return slots.data() + number * state_size; };
      std::copy(state.begin(), state.end(), slot(kOld));
      std::fill_n(slot(kOther), state_size, 0.5f);
      SequenceRows& other = step.sequences().front();
      other.state_slot = kOther;
      const StateWrite other_write{other.rows, kOtherNew};
      other.state_writes = &other_write;
      other.state_write_count = 1;
      SequenceRows& mine = step.sequences().back();
      mine.state_slot = kOld;
      std::vector<StateWrite> writes;
      std::vector<Floats*> written_states;
      if (written != nullptr) {
        for (auto& [position, state_at] : *written) {
          if (position <= first || position >= last) continue;
          writes.push_back({static_cast<int32_t>(position - first),
                            kInside + static_cast<int32_t>(written_states.size())});
          written_states.push_back(&state_at);
        }
      }
      writes.push_back({static_cast<int32_t>(last - first), kNew});
      mine.state_writes = writes.data();
      mine.state_write_count = static_cast<int32_t>(writes.size());
      CompressKvParams call = params;
      call.step = &step.rows();
      call.k = k.data();
      call.z = z.data();

      call.states = {reinterpret_cast<std::byte*>(slots.data() + 32),
                     static_cast<int64_t>(state_size) * 4};
      call.rows = step.MakeCompressedPool(params.ratio, dim);
      LaunchKernel(ReferenceManifest(), call, options);
      REQUIRE(std::memcmp(state.data(), slot(kOld), state_size * 4) == 0);
      const Floats next(slot(kNew), slot(kNew) + state_size);
      for (size_t s = 0; s < written_states.size(); ++s) {
        const float* from = slot(kInside + static_cast<int32_t>(s));
        written_states[s]->assign(from, from + state_size);
      }
      for (int64_t position = first; position < last; ++position) {
        if ((position + 1) % params.ratio != 0) continue;
        const int64_t compressed_block = position / params.ratio;
        const float* row =
            step.CompressedRow(call.rows, step.rows().rows - 1, compressed_block, params.ratio);
        compressed_blocks[compressed_block] = Floats(row, row + dim);
      }
      // Nothing around the compressor's part of the state is touched.
      const auto untouched = [](float v) { return std::isnan(v); };
      REQUIRE(std::all_of(next.begin(), next.begin() + 32, untouched));
      REQUIRE(std::all_of(next.begin() + 32 + state_floats, next.end(), untouched));
      state = next;
    }
    Floats result;
    for (const auto& [compressed_block, row] : compressed_blocks)
      result.insert(result.end(), row.begin(), row.end());
    REQUIRE(result.size() == static_cast<size_t>(end / params.ratio * dim));
    const float* begin = state.data() + 32;
    result.insert(result.end(), begin, begin + state_floats);
    return result;
  }

  CompressKvParams params;
  Floats ape;
  std::vector<uint16_t> norm;
  int64_t dim, width, state_floats;
};

CompressorCase GenerateCompressor() {
  return GENERATE(CompressorCase{4, false}, CompressorCase{4, true}, CompressorCase{128, false});
}

TEST_CASE("compress_kv pools, normalises and rotates each compressed block") {
  const CompressorCase kind = GenerateCompressor();
  const CompressorInput input(kind);
  const int64_t end = kind.ratio == 4 ? 530 : 700, dim = input.dim;
  const Floats rows = input.Compress(end, {0}, {}, false);
  for (int64_t compressed_block = 0; compressed_block < end / kind.ratio; ++compressed_block) {
    // (position, first column) of the compressed block's entries.
    std::vector<std::pair<int64_t, int64_t>> entries;
    for (int64_t j = 0; j < kind.ratio; ++j) {
      if (kind.ratio == 4 && compressed_block > 0)
        entries.push_back({4 * compressed_block - 4 + j, 0});
      entries.push_back({kind.ratio * compressed_block + j, kind.ratio == 4 ? dim : 0});
    }
    Doubles expected;
    for (int64_t d = 0; d < dim; ++d) {
      double sum = 0, weights = 0;
      for (const auto& [position, column] : entries) {
        const int64_t ape = position % kind.ratio * input.width + column + d;
        const double weight =
            std::exp(double{input.Z(position, column + d)} + input.ape[static_cast<size_t>(ape)]);
        weights += weight;
        sum += weight * input.K(position, column + d);
      }
      expected.push_back(sum / weights);
    }
    Normalise(expected, &input.norm);
    Rotate(expected, compressed_block * kind.ratio, CompressedFrequencies(), 1);
    if (kind.index_keys) {
      Doubles rotated(128);
      for (size_t i = 0; i < 128; ++i) {
        for (size_t j = 0; j < 128; ++j) {
          rotated[i] += (__builtin_popcountll(i & j) % 2 == 0 ? 1 : -1) * expected[j];
        }
        rotated[i] /= std::sqrt(128.0);
      }
      expected = rotated;
    }
    CAPTURE(kind.ratio, kind.index_keys, compressed_block);
    REQUIRE(Distance(&rows[static_cast<size_t>(compressed_block * dim)], expected) < 2e-6);
  }
}

TEST_CASE("compress_kv gives the same bits however a sequence is split") {
  const CompressorCase kind = GenerateCompressor();
  const Numerics numerics = GENERATE(Numerics::kPublished, Numerics::kExact);
  const CompressorInput input(kind);
  const int64_t end = kind.ratio == 4 ? 75 : 515;
  const Floats whole = input.Compress(end, {0}, {.numerics = numerics}, false);
  std::vector<int64_t> singly(static_cast<size_t>(end));
  std::iota(singly.begin(), singly.end(), 0);
  const std::vector<std::vector<int64_t>> splits = {
      singly, {0, 1, 4, 5, 12, 30}, {0, 3, 7, 8, 64, 71}, {0, 74}, {0, 70}};
  for (const std::vector<int64_t>& starts : splits) {
    CAPTURE(kind.ratio, kind.index_keys, starts.size());
    const Floats split = input.Compress(end, starts, {.numerics = numerics, .threads = 3}, true);
    REQUIRE(split.size() == whole.size());
    REQUIRE(std::memcmp(split.data(), whole.data(), whole.size() * 4) == 0);
  }
}

TEST_CASE("compress_kv writes inside a step what a step up to there would leave") {
  const CompressorCase kind = GenerateCompressor();
  const CompressorInput input(kind);
  const int64_t end = 2 * kind.ratio + 7;
  std::map<int64_t, Floats> written;
  for (const int64_t border : {int64_t{0}, int64_t{kind.ratio}, int64_t{2 * kind.ratio}}) {
    for (int64_t p = std::max<int64_t>(1, border - 2); p <= border + 3; ++p) written[p] = {};
  }
  // The second step begins inside a compressed block that a written state has a part of.
  const Floats whole = input.Compress(end, {0, 2}, {.threads = 3}, true, &written);
  REQUIRE(whole == input.Compress(end, {0}, {}, false));
  for (const auto& [position, state] : written) {
    if (position == 2) continue;  // the end of a step
    CAPTURE(kind.ratio, kind.index_keys, position);
    const Floats straight = input.Compress(position, {0}, {}, false);
    REQUIRE(std::memcmp(state.data() + 32, straight.data() + straight.size() - input.state_floats,
                        static_cast<size_t>(input.state_floats) * 4) == 0);
    // Nothing around the compressor's part is touched, and what there is not is zero.
    REQUIRE(std::all_of(state.begin(), state.begin() + 32, [](float v) { return std::isnan(v); }));
    const auto zeros = [&input, &state = state](int64_t triple) {
      const auto begin = state.begin() + 32 + triple * 3 * input.dim;
      return std::all_of(begin, begin + 3 * input.dim, [](float v) { return v == 0; });
    };
    const bool between_blocks = position % kind.ratio == 0;
    REQUIRE(zeros(kind.ratio == 4 ? 1 : 0) == between_blocks);
    if (kind.ratio == 4) {
      REQUIRE(zeros(0) == (position < 4));
      REQUIRE(zeros(2) == between_blocks);
    }
  }
}

TEST_CASE("compress_kv's points change its published rows one by one") {
  const CompressorCase kind = GenerateCompressor();
  const CompressorInput input(kind);
  const int64_t end = 2 * kind.ratio;
  std::vector<Point> points = {Point::kRoundPooling, Point::kRoundRmsNorm, Point::kRoundRope};
  if (kind.index_keys) {
    points.insert(points.end(), {Point::kRoundHadamard, Point::kQuantIndexKey});
  } else {
    points.push_back(Point::kQuantCompressedRow);
  }
  const Floats published = input.Compress(end, {0}, {.numerics = Numerics::kPublished}, false);
  for (int32_t i = 0; i < static_cast<int32_t>(Point::kCount); ++i) {
    const auto point = static_cast<Point>(i);
    const bool named = std::find(points.begin(), points.end(), point) != points.end();
    const Floats without = input.Compress(
        end, {0}, {.numerics = Numerics::kPublished, .omitted_points = PointBit(point)}, false);
    CAPTURE(kind.ratio, kind.index_keys, PointName(point));
    CHECK((without != published) == named);
  }
}

}  // namespace
}  // namespace dsv4
