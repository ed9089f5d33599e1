// SPDX-License-Identifier: Apache-2.0
// The small operators on rows of a backend: rope_table, embed_rows, copy_rows, rms_norm and
// draft_logits, against plain arithmetic or the reference in published numerics; and the row rule.
#include <cmath>

#include "kernels/op/dense.h"
#include "kernels/op/rope.h"
#include "tests/kernels/draft_logits_values.h"
#include "tests/kernels/operator_memory.h"

namespace dsv4::test {
namespace {

constexpr int32_t kRowCounts[] = {1, 2, 3, 6, 8, 16, 17, 48, 64, 65, 192};

void CheckRopeTable(const std::vector<int64_t>& positions) {
  const auto rows = static_cast<int32_t>(positions.size());
  const Array<int64_t> in(On::kTested, positions);
  std::vector<Array<float>> tables;
  for (int i = 0; i < 4; ++i) tables.emplace_back(On::kTested, int64_t{rows} * 64);
  RopeTableParams p;
  p.rows = rows;
  p.positions = in.data();
  FillRopeFrequencies(10000, 0, 0, 0, 0, p.frequencies.window);
  FillRopeFrequencies(160000, 16, 65536, 32, 1, p.frequencies.compressed);
  p.out = {tables[0].data(), tables[1].data(), tables[2].data(), tables[3].data()};
  Launch(On::kTested, p, 1 + rows % 3);
  std::vector<std::vector<float>> values;
  for (const auto& table : tables) values.push_back(table.Get());
  const auto check = [&](size_t table, int64_t row, int64_t position, const float* frequencies) {
    std::vector<float> want(64);
    for (size_t i = 0; i < 32; ++i) {
      const double angle = static_cast<double>(static_cast<float>(position) * frequencies[i]);
      want[i] = static_cast<float>(std::cos(angle));
      want[32 + i] = static_cast<float>(std::sin(angle));
    }
    INFO("table " << table << ", position " << position);
    REQUIRE(FarElements(Slice(values[table], row * 64, 64), want) == "");
  };
  for (int32_t r = 0; r < rows; ++r) {
    const int64_t t = positions[static_cast<size_t>(r)];
    check(0, r, t, p.frequencies.window);
    check(1, r, t, p.frequencies.compressed);
    if (t % 4 == 3) check(2, r, t - 3, p.frequencies.compressed);
    if (t % 128 == 127) check(3, r, t - 127, p.frequencies.compressed);
  }
}

TEST_CASE("rope_table is cos and sin of the f32 angle, correctly rounded") {
  std::vector<int64_t> positions = {127,  128,  129,  255,  256,   257,   511,     512,    513,
                                    2047, 2048, 2049, 2050, 2051,  2052,  0,       1,      2,
                                    3,    4,    5,    999,  16383, 65535, 1048575, 1048574};
  for (uint64_t i = 0; i < 500; ++i) positions.push_back(static_cast<int64_t>(Hash(i) % 1048576));
  ForEachVariant([&] {
    CheckRopeTable(positions);
    for (const int32_t rows : kRowCounts) {
      INFO(rows << " rows");
      CheckRopeTable({positions.begin(), positions.begin() + rows});
    }
  });
}

// The reference's, too: nothing else compares it.
void CheckCopyRows(On on, int64_t rows, int64_t bytes, int64_t offset) {
  INFO(rows << " rows of " << bytes << " bytes at offset " << offset);
  const int64_t stride = (bytes + 47) / 16 * 16;
  std::vector<unsigned char> values(static_cast<size_t>(rows * stride));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<unsigned char>(Hash(i));
  const Array<unsigned char> source(on, values), target(on, rows * stride);
  std::vector<const std::byte*> from;
  std::vector<std::byte*> to;
  std::vector<unsigned char> want(values.size(), Array<int>::kPoison);
  for (int64_t r = 0; r < rows; ++r) {
    // In reverse, one of them twice.
    const int64_t of = (r == 1 ? rows : rows - r) - 1;
    from.push_back(reinterpret_cast<const std::byte*>(source.data()) + of * stride + offset);
    to.push_back(reinterpret_cast<std::byte*>(target.data()) + r * stride + offset);
    std::copy_n(values.begin() + of * stride + offset, bytes, want.begin() + r * stride + offset);
  }
  const Array<const std::byte*> sources(on, from);
  const Array<std::byte*> places(on, to);
  CopyRowsParams p;
  p.rows = static_cast<int32_t>(rows);
  p.row_bytes = bytes;
  p.from = sources.data();
  p.to = places.data();
  Launch(on, p, 1 + static_cast<int>(rows % 3));
  REQUIRE(target.Get() == want);
}

TEST_CASE("copy_rows copies rows of any length and alignment") {
  for (const int64_t bytes : {1, 2, 15, 16, 17, 584, 4096, 4100, 33003, 100000}) {
    for (const int64_t offset : {0, 1, 2, 16}) {
      for (const int64_t rows : {1, 2, 3, 6, 8, 48, 64, 65, 192}) {
        if (rows > 8 && bytes > 33003) continue;
        CheckCopyRows(On::kTested, rows, bytes, offset);
        if (rows == 6) CheckCopyRows(On::kReference, rows, bytes, offset);
      }
    }
  }
  std::byte byte{};
  const std::byte* from[] = {&byte, &byte};
  std::byte* to[] = {&byte, &byte};
  CopyRowsParams p;
  p.rows = 2;
  p.row_bytes = 1;
  p.from = from;
  p.to = to;
  REQUIRE_OK(Validate(p));
  p.from = nullptr;
  REQUIRE_FAILS(Validate(p), absl::StatusCode::kInvalidArgument, "copy_rows");
}

TEST_CASE("embed_rows copies bits") {
  constexpr On on = On::kTested;
  for (const int64_t dim : {8, 9, 128, 136, 4096}) {
    std::vector<uint16_t> embed;
    for (int64_t i = 0; i < 50 * dim; ++i) {
      embed.push_back(static_cast<uint16_t>(Hash(static_cast<uint64_t>(i))));
    }
    const Array<uint16_t> table(on, embed);
    for (const int32_t rows : kRowCounts) {
      std::vector<int32_t> tokens;
      for (int32_t r = 0; r < rows; ++r) tokens.push_back((49 + 31 * r) % 50);
      // The same tokens, all of them or the last chosen by an earlier kernel; none is token 0.
      std::vector<int32_t> later, places;
      for (size_t r = 0; r < tokens.size(); ++r) {
        later.push_back(tokens[tokens.size() - 1 - r] == 0 ? -1 : tokens[tokens.size() - 1 - r]);
        places.push_back(-static_cast<int32_t>(tokens.size() - r));
      }
      const Array<int32_t> chosen(on, later);
      for (const int copies : {1, 4}) {
        INFO("hidden " << dim << ", " << rows << " rows, " << copies << " copies");
        std::vector<uint16_t> want;
        for (const int32_t token : tokens) {
          const auto row = embed.begin() + token * dim;
          for (int copy = 0; copy < copies; ++copy) want.insert(want.end(), row, row + dim);
        }
        for (const std::vector<int32_t>& named : {tokens, places}) {
          const Array<int32_t> in(on, named);
          const Array<uint16_t> out(on, rows * copies * dim);
          Launch(on,
                 EmbedRowsParams{.rows = rows,
                                 .copies = copies,
                                 .tokens = in.data(),
                                 .embed = {table.data(), 50, dim},
                                 .out = out.data(),
                                 .chosen = chosen.data()},
                 1 + rows % 3);
          REQUIRE(out.Get() == want);
        }
      }
    }
  }
}

struct Normed {
  std::vector<float> normed, quantized;
};

Normed RunRmsNorm(On on, const std::vector<float>& x, const std::vector<uint16_t>& weight,
                  bool norm, bool quantize, float eps = 1e-6f) {
  const auto dim = static_cast<int64_t>(weight.size());
  const auto rows = static_cast<int32_t>(static_cast<int64_t>(x.size()) / dim);
  const Acts in(on, x), normed(on, rows * dim);
  const QuantizedActs quantized(on, rows, dim);
  const Array<uint16_t> weights(on, weight);
  RmsNormParams p{.rows = rows,
                  .dim = dim,
                  .x = in.data(),
                  .weight = weights.data(),
                  .eps = eps,
                  .normed = norm ? normed.data() : nullptr,
                  .quantized = quantize ? quantized.data() : nullptr};
  Launch(on, p, 1 + rows % 3);
  return {norm ? normed.Get() : std::vector<float>(),
          quantize ? quantized.Get() : std::vector<float>()};
}

TEST_CASE("rms_norm equals the reference, with either output left out, and keeps the row rule") {
  for (const int64_t dim : {128, 384, 1024, 4096}) {
    constexpr int64_t kMost = 192;
    std::vector<float> x;
    for (int64_t i = 0; i < kMost * dim; ++i) {
      x.push_back(
          std::ldexp(Value(62, 0, i / dim, i % dim), static_cast<int>(i / dim % 7) * 3 - 9));
    }
    const std::vector<uint16_t> weight = RandomNorm(84, dim);
    const Normed want = RunRmsNorm(On::kReference, x, weight, true, true);
    ForEachVariant([&] {
      const Normed whole = RunRmsNorm(On::kTested, x, weight, true, true);
      RequireRounded(whole.normed, want.normed);
      RequireQuantized(whole.quantized, want.quantized);
      for (const int32_t rows : kRowCounts) {
        INFO("dim " << dim << ", " << rows << " rows");
        const int64_t first = (kMost - rows) / 2 * dim;
        const std::vector<float> part = Slice(x, first, rows * dim);
        RequireSlice(RunRmsNorm(On::kTested, part, weight, true, false).normed, whole.normed,
                     first);
        RequireSlice(RunRmsNorm(On::kTested, part, weight, false, true).quantized, whole.quantized,
                     first);
      }
    });
  }
}

TEST_CASE("act_quant rounds every bf16 value as the reference does") {
  // A weight of 1 and rows of one dominant value make the norm's output the value to quantise: here
  // every exponent and mantissa, next to a larger value.
  constexpr int64_t kDim = 128, kRows = 2048;
  std::vector<float> x;
  for (uint64_t i = 0; i < kRows * kDim; ++i) {
    const uint64_t h = Hash(i);
    x.push_back(Bf16ToFloat(static_cast<uint16_t>((h & 0x807f) | (96 + h % 41) << 7)));
  }
  const std::vector<uint16_t> ones(kDim, FloatToBf16(1.0f));
  const Normed want = RunRmsNorm(On::kReference, x, ones, false, true, 0);
  ForEachVariant([&] {
    RequireQuantized(RunRmsNorm(On::kTested, x, ones, false, true, 0).quantized, want.quantized);
  });
}

TEST_CASE("draft_logits adds what the token before says, and tells how sure it is") {
  const DraftLogitsValues v;
  const DraftLogitsValues::Expected want = v.Want();
  std::vector<float> state_values;
  for (const uint16_t bits : v.states) state_values.push_back(Bf16ToFloat(bits));
  const auto check = [&](On on, int threads) {
    const Array<uint16_t> embed(on, v.embed), weight(on, v.weight), confidence(on, v.confidence);
    const Acts states(on, state_values);
    const Array<int32_t> row_of(on, v.row_of), tokens(on, v.tokens), chosen(on, v.chosen);
    const Array<float> logits(on, v.logits), again(on, v.logits), confidences(on, v.confidences);
    DraftLogitsParams p = v.Params();
    p.row_of = row_of.data();
    p.tokens = tokens.data();
    p.chosen = chosen.data();
    p.embed = embed.data();
    p.weight = weight.data();
    p.confidence = confidence.data();
    p.states = states.data();
    p.logits = logits.data();
    p.confidences = confidences.data();
    Launch(on, p, threads);
    RequireNear(logits.Get(), want.logits);
    RequireNear(confidences.Get(), want.confidences);
    // One row at a time, the same bits.
    p.logits = again.data();
    p.rows = 1;
    for (int i = 0; i < 4; ++i) {
      Launch(on, p, threads);
      ++p.row_of;
      ++p.tokens;
    }
    REQUIRE(again.Get() == logits.Get());
  };
  check(On::kReference, 1);
  ForEachVariant([&] {
    check(On::kTested, 1);
    check(On::kTested, 3);
  });
}

}  // namespace
}  // namespace dsv4::test
