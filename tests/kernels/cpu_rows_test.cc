// SPDX-License-Identifier: Apache-2.0
// The cpu backend's row operators: rope_table, embed_rows, copy_rows, rms_norm, the
// hyper-connection and the MTP block's input, bit for bit against the reference in published
// numerics (both round the same doubles) or plain arithmetic; the quantisers of single values; and
// the row rule.
#include <cmath>

#include "kernels/op/dense.h"
#include "kernels/op/hyper_connection.h"
#include "tests/kernels/cpu_step.h"
#include "tests/support/worst_element.h"

namespace dsv4::test {
namespace {

TEST_CASE("cpu rope_table is cos and sin of the f32 angle, correctly rounded") {
  std::vector<int64_t> positions = {0,   1,   2,   3,     4,     5,       127,
                                    128, 255, 999, 16383, 65535, 1048575, 1048574};
  for (int64_t i = 0; i < 500; ++i)
    positions.push_back(static_cast<int64_t>(Hash(static_cast<uint64_t>(i)) % 1048576));
  const auto rows = static_cast<int32_t>(positions.size());
  ForEachTarget([&] {
    for (const int threads : {1, 3}) {
      std::deque<Guarded<float>> tables;
      for (int i = 0; i < 4; ++i) tables.emplace_back(rows * 64);
      RopeTableParams p;
      p.rows = rows;
      p.positions = positions.data();
      FillRopeFrequencies(10000, 0, 0, 0, 0, p.frequencies.window);
      FillRopeFrequencies(160000, 16, 65536, 32, 1, p.frequencies.compressed);
      p.out = {tables[0].data(), tables[1].data(), tables[2].data(), tables[3].data()};
      Launch<uint16_t>(p, threads);
      const auto check = [&](int table, int64_t row, int64_t position, const float* frequencies) {
        std::vector<float> want(64);
        for (size_t i = 0; i < 32; ++i) {
          const double angle = static_cast<double>(static_cast<float>(position) * frequencies[i]);
          want[i] = static_cast<float>(std::cos(angle));
          want[32 + i] = static_cast<float>(std::sin(angle));
        }
        INFO("table " << table << ", position " << position);
        REQUIRE(FarElements(absl::MakeConstSpan(&tables[static_cast<size_t>(table)][row * 64], 64),
                            want) == "");
      };
      for (int32_t r = 0; r < rows; ++r) {
        const int64_t t = positions[static_cast<size_t>(r)];
        check(0, r, t, p.frequencies.window);
        check(1, r, t, p.frequencies.compressed);
        if (t % 4 == 3) check(2, r, t - 3, p.frequencies.compressed);
        if (t % 128 == 127) check(3, r, t - 127, p.frequencies.compressed);
      }
      for (auto& table : tables) REQUIRE(table.Intact());
    }
  });
}

TEST_CASE("cpu embed_rows copies bits") {
  constexpr int64_t kVocab = 50, kDim = 128;
  std::vector<uint16_t> embed(kVocab * kDim);
  for (size_t i = 0; i < embed.size(); ++i) embed[i] = static_cast<uint16_t>(Hash(i));
  const std::vector<int32_t> tokens = {0, 49, 7, 7, 13};
  for (const int copies : {1, 4}) {
    Guarded<uint16_t> out(5 * copies * kDim);
    EmbedRowsParams p;
    p.rows = 5;
    p.copies = copies;
    p.tokens = tokens.data();
    p.embed = {embed.data(), kVocab, kDim};
    p.out = out.data();
    Launch<uint16_t>(p, 2);
    REQUIRE(out.Intact());
    std::vector<uint16_t> want;
    for (int64_t i = 0; i < out.size(); ++i) {
      const int64_t token = tokens[static_cast<size_t>(i / (copies * kDim))];
      want.push_back(embed[static_cast<size_t>(token * kDim + i % kDim)]);
    }
    REQUIRE(DifferentBits(absl::MakeConstSpan(out.data(), want.size()), want) == "");
  }
}

template <class Act>
void RequireCopies() {
  for (const int64_t bytes : {1, 584, 2048, 100000}) {
    constexpr int64_t kPlaces = 40;
    Guarded<unsigned char> from(kPlaces * bytes), to(kPlaces * bytes);
    for (int64_t i = 0; i < from.size(); ++i) {
      from[i] = static_cast<unsigned char>(Hash(static_cast<uint64_t>(i)));
    }
    // Scattered, every third place of `to`; one source twice.
    std::vector<const std::byte*> sources;
    std::vector<std::byte*> places;
    std::vector<int64_t> source_of(kPlaces, -1);
    for (int64_t place = 0; place < kPlaces; place += 3) {
      const int64_t source = place == 3 ? 0 : place * 7 % kPlaces;
      source_of[static_cast<size_t>(place)] = source;
      sources.push_back(reinterpret_cast<const std::byte*>(from.data() + source * bytes));
      places.push_back(reinterpret_cast<std::byte*>(to.data() + place * bytes));
    }
    CopyRowsParams p;
    p.rows = static_cast<int32_t>(places.size());
    p.row_bytes = bytes;
    p.from = sources.data();
    p.to = places.data();
    Launch<Act>(p, 3);
    REQUIRE(to.Intact());
    for (int64_t i = 0; i < to.size(); ++i) {
      const int64_t source = source_of[static_cast<size_t>(i / bytes)];
      const unsigned char kept = Guarded<unsigned char>::kPoison;
      if (to[i] != (source < 0 ? kept : from[source * bytes + i % bytes])) {
        FAIL("byte " << i << " of rows of " << bytes);
      }
    }
  }
}

TEST_CASE("copy_rows moves rows from anywhere to anywhere") {
  RequireCopies<uint16_t>();
  RequireCopies<float>();
  CopyRowsParams p;
  std::byte byte{};
  const std::byte* from[] = {&byte, &byte};
  std::byte* to[] = {&byte, &byte};
  p.rows = 2;
  p.row_bytes = 1;
  p.from = from;
  p.to = to;
  REQUIRE_OK(Validate(p));
  p.from = nullptr;
  REQUIRE_FAILS(Validate(p), absl::StatusCode::kInvalidArgument, "copy_rows");
}

template <class Act>
Guarded<Act> Tensor(uint64_t kind, int64_t rows, int64_t n, int64_t first_row = 0) {
  Guarded<Act> out(rows * n);
  for (int64_t i = 0; i < rows * n; ++i) {
    // Rows of very different magnitudes.
    const int64_t row = first_row + i / n;
    out[i] = ToAct<Act>(std::ldexp(Value(kind, 0, row, i % n), static_cast<int>(row % 7) * 3 - 9));
  }
  return out;
}

template <class Act>
void Read(Guarded<Act>& tensor, int64_t rows, int64_t n, int64_t first_row, Rows& out) {
  REQUIRE(tensor.Intact());
  for (int64_t i = 0; i < rows * n; ++i) {
    out[{0, first_row + i / n}].push_back(FromAct(tensor[i]));
  }
}

std::vector<uint16_t> NormWeight(int64_t dim) {
  std::vector<uint16_t> out;
  for (int64_t i = 0; i < dim; ++i) out.push_back(FloatToBf16(1 + Value(61, 0, 0, i) / 4));
  return out;
}

// Runs the rows [first, first + rows) of an endless input.
using Run = std::function<Rows(int64_t first, int32_t rows, int threads)>;

void RequireRowRule(const Run& run) {
  const Rows whole = run(0, 37, 1);
  REQUIRE(whole.size() == 37);
  RequireSame(run(0, 37, 2), whole);
  RequireSame(run(0, 37, 3), whole);
  for (const auto& [first, rows] :
       {std::pair<int64_t, int32_t>{0, 1}, {5, 1}, {36, 1}, {3, 2}, {1, 17}}) {
    for (const auto& [key, row] : run(first, rows, 2)) {
      INFO("row " << key.second << " of " << rows);
      REQUIRE(SameBits(row, whole.at(key)));
    }
  }
}

template <class Act>
Rows RunRmsNorm(int64_t first, int32_t rows, int64_t dim, int outputs, int threads) {
  Guarded<Act> x = Tensor<Act>(62, rows, dim, first), normed(rows * dim), quantized(rows * dim);
  const std::vector<uint16_t> weight = NormWeight(dim);
  RmsNormParams p;
  p.rows = rows;
  p.dim = dim;
  p.x = x.data();
  p.weight = weight.data();
  p.eps = 1e-6f;
  p.normed = outputs & 1 ? normed.data() : nullptr;
  p.quantized = outputs & 2 ? quantized.data() : nullptr;
  Launch<Act>(p, threads);
  Rows out;
  if (outputs & 1) Read(normed, rows, dim, first, out);
  if (outputs & 2) Read(quantized, rows, dim, first, out);
  return out;
}

TEST_CASE("cpu rms_norm equals the reference and keeps the row rule") {
  ForEachTarget([] {
    for (const int64_t dim : {128, 384, 1024, 4096}) {
      for (const int outputs : {1, 2, 3}) {
        RequireSame(RunRmsNorm<uint16_t>(0, 20, dim, outputs, 2),
                    RunRmsNorm<float>(0, 20, dim, outputs, 1));
      }
    }
    RequireRowRule([](int64_t first, int32_t rows, int threads) {
      return RunRmsNorm<uint16_t>(first, rows, 256, 3, threads);
    });
  });
}

TEST_CASE("cpu act_quant rounds every bf16 value as the reference does") {
  // A weight of 1 and rows of one dominant value make the norm's output the value to quantise: here
  // every exponent and mantissa, next to a larger value.
  constexpr int64_t kDim = 128;
  constexpr int32_t kRows = 2048;
  const std::vector<uint16_t> weight(kDim, FloatToBf16(1.0f));
  const auto fill = [&](auto& x) {
    for (int64_t i = 0; i < kRows * kDim; ++i) {
      const uint64_t h = Hash(static_cast<uint64_t>(i));
      const auto bits = static_cast<uint16_t>((h & 0x807f) | ((96 + h % 41 * 1) % 256) << 7);
      x[i] = ToAct<std::remove_reference_t<decltype(x[0])>>(Bf16ToFloat(bits));
    }
  };
  const auto run = [&](auto act) {
    using Act = decltype(act);
    Guarded<Act> x(kRows * kDim), out(kRows * kDim);
    fill(x);
    RmsNormParams p;
    p.rows = kRows;
    p.dim = kDim;
    p.x = x.data();
    p.weight = weight.data();
    p.eps = 0;
    p.quantized = out.data();
    Launch<Act>(p, 2);
    Rows rows;
    Read(out, kRows, kDim, 0, rows);
    return rows;
  };
  ForEachTarget([&] { RequireSame(run(uint16_t{}), run(float{})); });
}

enum class Streams { kGiven, kUpdated, kUpdatedAhead };

// With kUpdated an update is part of the call, in place and with the weights' buffers as a model
// has them; with kUpdatedAhead it is an hc_post.
template <class Act>
Rows RunHcPre(int64_t first, int32_t rows, int64_t dim, int threads,
              Streams form = Streams::kGiven) {
  Guarded<Act> streams = Tensor<Act>(63, rows, 4 * dim, first), normed(rows * dim),
               quantized(rows * dim), y = Tensor<Act>(74, rows, dim, first);
  Guarded<float> post = Tensor<float>(75, rows, 4, first),
                 comb = Tensor<float>(76, rows, 16, first);
  std::vector<float> fn, base, scale = {0.7f, 1.3f, 2.0f};
  for (int64_t i = 0; i < 24 * 4 * dim; ++i)
    fn.push_back(Value(64, 0, 0, i) * 1.7f / std::sqrt(4.0f * static_cast<float>(dim)));
  for (int64_t i = 0; i < 24; ++i) base.push_back(Value(65, 0, 0, i));
  const std::vector<uint16_t> norm = NormWeight(dim);
  HcPreParams p;
  p.rows = rows;
  p.hidden = dim;
  p.streams = streams.data();
  p.fn = fn.data();
  p.base = base.data();
  p.scale = scale.data();
  p.hc_eps = p.norm_eps = 1e-6f;
  p.sinkhorn_iters = 20;
  p.norm = norm.data();
  p.normed = normed.data();
  p.quantized = quantized.data();
  p.post = post.data();
  p.comb = comb.data();
  if (form != Streams::kGiven) {
    p.update = {y.data(), post.data(), comb.data(), streams.data()};
    if (form == Streams::kUpdatedAhead) {
      Launch<Act>(UpdateOf(p), threads);
      p = AfterUpdate(p);
    }
  }
  Launch<Act>(p, threads);
  Rows out;
  Read(streams, rows, 4 * dim, first, out);
  Read(normed, rows, dim, first, out);
  Read(quantized, rows, dim, first, out);
  Read(post, rows, 4, first, out);
  Read(comb, rows, 16, first, out);
  return out;
}

TEST_CASE("cpu hc_pre equals the reference and keeps the row rule") {
  ForEachTarget([] {
    for (const int64_t dim : {128, 256, 640, 4096}) {
      RequireSame(RunHcPre<uint16_t>(0, 21, dim, 2), RunHcPre<float>(0, 21, dim, 1));
    }
    RequireRowRule([](int64_t first, int32_t rows, int threads) {
      return RunHcPre<uint16_t>(first, rows, 384, threads);
    });
  });
}

TEST_CASE("hc_pre with an update is hc_post and hc_pre") {
  for (const int32_t rows : {1, 2, 16, 17, 65}) {
    INFO(rows << " rows");
    const Rows got = RunHcPre<uint16_t>(0, rows, 256, 2, Streams::kUpdated);
    REQUIRE((got == RunHcPre<uint16_t>(0, rows, 256, 2, Streams::kUpdatedAhead)));
    REQUIRE((got != RunHcPre<uint16_t>(0, rows, 256, 2)));
    REQUIRE((RunHcPre<float>(0, rows, 256, 2, Streams::kUpdated) ==
             RunHcPre<float>(0, rows, 256, 2, Streams::kUpdatedAhead)));
  }
}

template <class Act>
Rows RunHcPost(int64_t first, int32_t rows, int64_t dim, bool in_place, int threads) {
  Guarded<Act> streams = Tensor<Act>(66, rows, 4 * dim, first),
               y = Tensor<Act>(67, rows, dim, first), out(rows * 4 * dim);
  Guarded<float> post = Tensor<float>(68, rows, 4, first),
                 comb = Tensor<float>(69, rows, 16, first);
  HcPostParams p;
  p.rows = rows;
  p.hidden = dim;
  p.y = y.data();
  p.post = post.data();
  p.comb = comb.data();
  p.streams = streams.data();
  p.out = in_place ? streams.data() : out.data();
  Launch<Act>(p, threads);
  Rows result;
  Read(in_place ? streams : out, rows, 4 * dim, first, result);
  return result;
}

TEST_CASE("cpu hc_post equals the reference and keeps the row rule") {
  ForEachTarget([] {
    for (const bool in_place : {false, true}) {
      RequireSame(RunHcPost<uint16_t>(0, 30, 256, in_place, 2),
                  RunHcPost<float>(0, 30, 256, false, 1));
      RequireRowRule([&](int64_t first, int32_t rows, int threads) {
        return RunHcPost<uint16_t>(first, rows, 128, in_place, threads);
      });
    }
  });
}

// The head's sum and norm, or the streams' mean. Two of these lie next to each other.
enum class HeadOutput { kNormed, kMean };

template <class Act>
Rows RunHcHead(int64_t first, int32_t rows, int64_t dim, bool chosen, int threads,
               HeadOutput output = HeadOutput::kNormed) {
  // Chosen rows lie reversed among twice as many.
  Guarded<Act> streams = Tensor<Act>(70, chosen ? 2 * rows : rows, 4 * dim, first),
               normed(rows * dim), mixed(rows * dim), means(rows * 2 * dim);
  std::vector<int32_t> row_of;
  if (chosen) {
    Guarded<Act> in = Tensor<Act>(70, rows, 4 * dim, first);
    for (int32_t r = 0; r < rows; ++r) {
      row_of.push_back(2 * (rows - 1 - r));
      for (int64_t i = 0; i < 4 * dim; ++i)
        streams[row_of.back() * 4 * dim + i] = in[r * 4 * dim + i];
    }
  }
  std::vector<float> fn, base = {0.1f, -0.4f, 0.9f, 0}, scale = {1.1f};
  for (int64_t i = 0; i < 16 * dim; ++i)
    fn.push_back(Value(71, 0, 0, i) * 1.7f / std::sqrt(4.0f * static_cast<float>(dim)));
  const std::vector<uint16_t> norm = NormWeight(dim);
  HcHeadParams p;
  p.rows = rows;
  p.row_of = chosen ? row_of.data() : nullptr;
  p.hidden = dim;
  p.streams = streams.data();
  Rows out;
  if (output == HeadOutput::kMean) {
    p.quantized = means.data();
    p.quantized_width = 2 * dim;
    for (const int64_t part : {0, 1}) {
      p.quantized_column = part * dim;
      Launch<Act>(p, threads);
    }
    Read(means, rows, 2 * dim, first, out);
    return out;
  }
  p.fn = fn.data();
  p.base = base.data();
  p.scale = scale.data();
  p.hc_eps = p.norm_eps = 1e-6f;
  p.norm = norm.data();
  p.normed = normed.data();
  p.mixed = mixed.data();
  Launch<Act>(p, threads);
  Read(normed, rows, dim, first, out);
  Read(mixed, rows, dim, first, out);
  return out;
}

TEST_CASE("cpu hc_head equals the reference and keeps the row rule") {
  ForEachTarget([] {
    for (const int64_t dim : {128, 256, 4096}) {
      RequireSame(RunHcHead<uint16_t>(0, 9, dim, false, 2), RunHcHead<float>(0, 9, dim, false, 1));
    }
    RequireSame(RunHcHead<uint16_t>(0, 20, 256, true, 1),
                RunHcHead<uint16_t>(0, 20, 256, false, 1));
    RequireSame(RunHcHead<uint16_t>(0, 20, 256, true, 1, HeadOutput::kMean),
                RunHcHead<float>(0, 20, 256, true, 1, HeadOutput::kMean));
    for (const HeadOutput output : {HeadOutput::kNormed, HeadOutput::kMean}) {
      RequireRowRule([output](int64_t first, int32_t rows, int threads) {
        return RunHcHead<uint16_t>(first, rows, 256, true, threads, output);
      });
    }
  });
}

TEST_CASE("cpu mtp_combine adds and rounds") {
  constexpr int64_t kDim = 128, kRows = 30;
  ForEachTarget([] {
    Guarded<uint16_t> e = Tensor<uint16_t>(72, kRows, kDim),
                      h = Tensor<uint16_t>(73, kRows, 4 * kDim), out(kRows * 4 * kDim);
    MtpCombineParams p;
    p.rows = kRows;
    p.hidden = kDim;
    p.e = e.data();
    p.h = h.data();
    p.streams = out.data();
    Launch<uint16_t>(p, 2);
    REQUIRE(out.Intact());
    std::vector<uint16_t> want;
    for (int64_t i = 0; i < out.size(); ++i) {
      const float sum = Bf16ToFloat(e[i / (4 * kDim) * kDim + i % kDim]) + Bf16ToFloat(h[i]);
      want.push_back(FloatToBf16(sum));
    }
    REQUIRE(DifferentBits(absl::MakeConstSpan(out.data(), want.size()), want) == "");
    p.streams = h.data();
    Launch<uint16_t>(p, 1);
    REQUIRE(DifferentBits(absl::MakeConstSpan(h.data(), want.size()), want) == "");
  });
}

}  // namespace
}  // namespace dsv4::test
