// SPDX-License-Identifier: Apache-2.0
// The hyper-connection operators of a backend against the reference in published numerics, and the
// row rule bit for bit.
#include <type_traits>

#include "kernels/op/hyper_connection.h"
#include "tests/kernels/operator_memory.h"

namespace dsv4::test {
namespace {

constexpr int32_t kRowCounts[] = {1, 2, 3, 6, 8, 16, 17, 48, 64, 65, 192};
constexpr int64_t kWidths[] = {128, 384, 1024, 4096};
constexpr int32_t kManyRows = 272;
constexpr double kMixNoise = 2e-7;  // an ulp of a mixing number, where streams cancel each other

// bf16 rows of very different magnitudes.
std::vector<float> Streams(uint64_t seed, int64_t rows, int64_t width) {
  std::vector<float> values;
  for (int64_t i = 0; i < rows * width; ++i) {
    constexpr float kScales[] = {0x1p-9f, 0x1p-6f, 0x1p-3f, 1, 0x1p3f, 0x1p6f, 0x1p9f};
    values.push_back(
        RoundToBf16(RandomValue(seed, static_cast<uint64_t>(i)) * kScales[i / width % 7]));
  }
  return values;
}

struct HcWeights {
  HcWeights(int64_t mixes, int64_t dim)
      : fn(RandomFloats(71, mixes * 4 * dim, 0.05f)),
        base(RandomFloats(72, mixes)),
        scale({0.7f, 1.3f, 0.9f}),
        norm(RandomNorm(74, dim)) {}
  std::vector<float> fn, base, scale;
  std::vector<uint16_t> norm;
};

// The weights in the memory of one side.
struct SideWeights {
  SideWeights(On on, const HcWeights& w)
      : fn(on, w.fn), base(on, w.base), scale(on, w.scale), norm(on, w.norm) {}
  Array<float> fn, base, scale;
  Array<uint16_t> norm;
};

struct HcPreRun {
  HcPreRun(On on, int32_t rows, int64_t dim)
      : normed(on, rows * dim), quantized(on, rows, dim), post(on, rows * 4), comb(on, rows * 16) {}
  HcPreParams Params(int32_t rows, int64_t dim, const SideWeights& w) const {
    return {.rows = rows,
            .hidden = dim,
            .fn = w.fn.data(),
            .base = w.base.data(),
            .scale = w.scale.data(),
            .hc_eps = 1e-6f,
            .norm_eps = 1e-6f,
            .sinkhorn_iters = 20,
            .norm = w.norm.data(),
            .normed = normed.data(),
            .quantized = quantized.data(),
            .post = post.data(),
            .comb = comb.data()};
  }
  Acts normed;
  QuantizedActs quantized;
  Array<float> post, comb;
};

struct HcPreValues {
  std::vector<float> normed, quantized, post, comb;
};
HcPreValues ValuesOf(const HcPreRun& run) {
  return {run.normed.Get(), run.quantized.Get(), run.post.Get(), run.comb.Get()};
}

HcPreValues RunHcPre(On on, const std::vector<float>& streams, int64_t dim, const HcWeights& w) {
  const auto rows = static_cast<int32_t>(static_cast<int64_t>(streams.size()) / (4 * dim));
  const Acts x(on, streams);
  const SideWeights weights(on, w);
  const HcPreRun run(on, rows, dim);
  HcPreParams p = run.Params(rows, dim, weights);
  p.streams = x.data();
  Launch(on, p, 1 + rows % 3);
  return ValuesOf(run);
}

TEST_CASE("hc_pre equals the reference and keeps the row rule") {
  for (const int64_t dim : kWidths) {
    // More than the first kernel's blocks take at once.
    const int32_t kRows = dim == kWidths[0] ? 1100 : kManyRows;
    const std::vector<float> streams = Streams(73, kRows, 4 * dim);
    const HcWeights w(24, dim);
    const HcPreValues want = RunHcPre(On::kReference, streams, dim, w);
    INFO("hidden " << dim);
    ForEachVariant([&] {
      const HcPreValues whole = RunHcPre(On::kTested, streams, dim, w);
      RequireRounded(whole.normed, want.normed, kMixNoise);
      RequireQuantized(whole.quantized, want.quantized);
      RequireF32(whole.post, want.post);
      RequireF32(whole.comb, want.comb);
      for (const int32_t rows : {1, 2, 3, 6, 8, 16, 17, 48, 64, 65, 192, 256, 257, 300}) {
        if (rows > kRows) continue;
        INFO(rows << " rows");
        const int64_t first = kRows - rows;
        const HcPreValues part =
            RunHcPre(On::kTested, Slice(streams, first * 4 * dim, int64_t{rows} * 4 * dim), dim, w);
        RequireSlice(part.normed, whole.normed, first * dim);
        RequireSlice(part.quantized, whole.quantized, first * dim);
        RequireSlice(part.post, whole.post, first * 4);
        RequireSlice(part.comb, whole.comb, first * 16);
      }
    });
  }
}

// Small whole numbers, so that any order of sums gives the same mixing numbers: what is left is the
// noise of sigmoid, softmax and Sinkhorn, whose steps do not undo each other's where logits are far
// apart. Results are the nearest floats; about one in 10^5 is the next one.
TEST_CASE("hc_pre gives the nearest floats to the reference's weights") {
  constexpr int64_t kRows = 1000, kDim = 128;
  std::vector<float> streams;
  for (uint64_t i = 0; i < kRows * 4 * kDim; ++i) {
    streams.push_back(std::round(8 * RandomValue(91, i)));
  }
  HcWeights w(24, kDim);
  for (float& value : w.fn) value = std::round(value * 320) / 16;  // up to 1
  const auto require_nearest = [](const std::vector<float>& got, const std::vector<float>& want) {
    REQUIRE(FarElements(got, want, {.relative = 0x1p-23, .absolute = 1e-36}) == "");
    size_t apart = 0;
    for (size_t i = 0; i < got.size(); ++i) apart += got[i] != want[i];
    INFO(apart << " of " << got.size() << " elements are apart");
    REQUIRE(apart <= got.size() / 1000);
  };
  for (const float spread : {0.02f, 0.1f, 0.4f, 1.6f}) {  // logits of 0.3 to 20
    w.scale = {spread, spread, spread};
    INFO("spread " << spread);
    const HcPreValues want = RunHcPre(On::kReference, streams, kDim, w);
    ForEachVariant([&] {
      const HcPreValues got = RunHcPre(On::kTested, streams, kDim, w);
      require_nearest(got.post, want.post);
      require_nearest(got.comb, want.comb);
    });
  }
}

// Rows of both the kernel that makes the update itself and the one that leaves it to hc_post.
TEST_CASE("hc_pre with an update is hc_post and hc_pre, bit for bit") {
  for (const int64_t dim : kWidths) {
    const HcWeights w(24, dim);
    for (const int32_t rows :
         {1, 2, 3, 6, 7, 8, 9, 15, 16, 17, 33, 48, 64, 65, 192, kManyRows, 700}) {
      if (rows > kManyRows && dim > kWidths[0]) continue;
      INFO("hidden " << dim << ", " << rows << " rows");
      const std::vector<float> streams = Streams(93, rows, 4 * dim), ys = Streams(94, rows, dim);
      ForEachVariant([&] {
        const SideWeights weights(On::kTested, w);
        const Acts y(On::kTested, ys);
        const auto run = [&](bool ahead, bool in_place) {
          const Acts x(On::kTested, streams), out(On::kTested, int64_t{rows} * 4 * dim);
          HcPreRun of(On::kTested, rows, dim);
          of.post.Set(RandomFloats(95, rows * 4));
          of.comb.Set(RandomFloats(96, rows * 16));
          HcPreParams p = of.Params(rows, dim, weights);
          p.streams = x.data();
          p.update = {y.data(), of.post.data(), of.comb.data(), in_place ? x.data() : out.data()};
          if (ahead) {
            Launch(On::kTested, UpdateOf(p));
            p = AfterUpdate(p);
          }
          Launch(On::kTested, p, 1 + rows % 3);
          x.Get();  // its guards
          HcPreValues values = ValuesOf(of);
          const std::vector<float> made = (in_place ? x : out).Get();
          values.normed.insert(values.normed.end(), made.begin(), made.end());
          return values;
        };
        const HcPreValues want = run(true, false);
        for (const bool in_place : {false, true}) {
          INFO("in place " << in_place);
          const HcPreValues got = run(false, in_place);
          RequireSlice(got.normed, want.normed, 0);
          RequireSlice(got.quantized, want.quantized, 0);
          RequireSlice(got.post, want.post, 0);
          RequireSlice(got.comb, want.comb, 0);
        }
      });
    }
  }
}

TEST_CASE("hc_head equals the reference and keeps the row rule, of chosen rows too") {
  constexpr int32_t kRows = 192;
  for (const int64_t dim : kWidths) {
    const std::vector<float> streams = Streams(75, kRows, 4 * dim);
    const HcWeights w(4, dim);
    struct Outputs {
      std::vector<float> normed, mixed;
    };
    const auto run = [&](On on, int32_t rows, const std::vector<int32_t>& chosen, bool mixes) {
      const Acts x(on, streams), normed(on, rows * dim), mixed(on, rows * dim);
      const SideWeights weights(on, w);
      const Array<int32_t> row_of(on, chosen);
      Launch(on,
             HcHeadParams{.rows = rows,
                          .row_of = chosen.empty() ? nullptr : row_of.data(),
                          .hidden = dim,
                          .streams = x.data(),
                          .fn = weights.fn.data(),
                          .base = weights.base.data(),
                          .scale = weights.scale.data(),
                          .hc_eps = 1e-6f,
                          .norm_eps = 1e-6f,
                          .norm = weights.norm.data(),
                          .normed = normed.data(),
                          .mixed = mixes ? mixed.data() : nullptr},
             1 + rows % 3);
      return Outputs{normed.Get(), mixed.Get()};
    };
    INFO("hidden " << dim);
    const Outputs want = run(On::kReference, kRows, {}, true);
    ForEachVariant([&] {
      const Outputs whole = run(On::kTested, kRows, {}, true);
      RequireRounded(whole.normed, want.normed, kMixNoise);
      RequireRounded(whole.mixed, want.mixed, kMixNoise);
      RequireSlice(run(On::kTested, kRows, {}, false).normed, whole.normed, 0);
      for (const int32_t rows : kRowCounts) {
        INFO(rows << " rows");
        RequireSlice(run(On::kTested, rows, {}, false).normed, whole.normed, 0);
        std::vector<int32_t> chosen;  // in another order, some of them twice
        std::vector<float> of_chosen;
        for (int32_t r = 0; r < rows; ++r) {
          chosen.push_back((rows + r * r) % kRows);
          const auto row = whole.normed.begin() + chosen.back() * dim;
          of_chosen.insert(of_chosen.end(), row, row + dim);
        }
        RequireSlice(run(On::kTested, rows, chosen, false).normed, of_chosen, 0);
      }
    });
  }
}

// [rows, width], without quantisation.
struct PlainActs : Acts {
  PlainActs(On on, int64_t rows, int64_t width) : Acts(on, rows * width) {}
};

TEST_CASE("hc_head takes the streams' means, as parts of rows, of chosen rows too") {
  for (const int64_t dim : kWidths) {
    for (const int32_t rows : kRowCounts) {
      INFO("hidden " << dim << ", " << rows << " rows");
      const int64_t width = 3 * dim;
      const std::vector<float> streams = Streams(97, rows, 4 * dim),
                               others = Streams(98, rows, 4 * dim);
      std::vector<int32_t> reversed;
      for (int32_t r = 0; r < rows; ++r) reversed.push_back(rows - 1 - r);
      const auto run = [&]<class Out>(On on, std::type_identity<Out>) {
        const Acts x(on, streams), y(on, others);
        const Array<int32_t> row_of(on, reversed);
        const Out out(on, rows, width);
        for (const int64_t part : {1, 2, 0}) {
          Launch(on,
                 HcHeadParams{.rows = rows,
                              .row_of = part == 2 ? row_of.data() : nullptr,
                              .hidden = dim,
                              .streams = (part == 1 ? y : x).data(),
                              .quantized = out.data(),
                              .quantized_width = width,
                              .quantized_column = part * dim,
                              .quantise = std::is_same_v<Out, QuantizedActs>},
                 1 + rows % 3);
        }
        return out.Get();
      };
      constexpr std::type_identity<QuantizedActs> kQuantized;
      constexpr std::type_identity<PlainActs> kPlain;
      const std::vector<float> want = run(On::kReference, kQuantized),
                               plain = run(On::kReference, kPlain);
      ForEachVariant([&] {
        RequireQuantized(run(On::kTested, kQuantized), want);
        RequireRounded(run(On::kTested, kPlain), plain);
      });
    }
  }
}

// For each width and number of rows: `run` on the tested backend, in place and not, gives what it
// gives on the reference; and its rows are the first ones of a larger run.
void RequireInPlaceToo(
    const std::function<std::vector<float>(On, int64_t dim, int32_t rows, bool in_place)>& run) {
  for (const int64_t dim : kWidths) {
    for (const int32_t rows : kRowCounts) {
      INFO("hidden " << dim << ", " << rows << " rows");
      const std::vector<float> want = run(On::kReference, dim, rows, false);
      ForEachVariant([&] {
        const std::vector<float> got = run(On::kTested, dim, rows, false);
        RequireRounded(got, want);
        RequireSlice(run(On::kTested, dim, rows, true), got, 0);
        RequireSlice(got, run(On::kTested, dim, kManyRows, false), 0);
      });
    }
  }
}

TEST_CASE("hc_post equals the reference, in place too") {
  RequireInPlaceToo([](On on, int64_t dim, int32_t rows, bool in_place) {
    const Acts x(on, Streams(77, rows, 4 * dim)), y(on, Streams(78, rows, dim)),
        out(on, int64_t{rows} * 4 * dim);
    const Array<float> post(on, RandomFloats(79, rows * 4)), comb(on, RandomFloats(80, rows * 16));
    Launch(on,
           HcPostParams{.rows = rows,
                        .hidden = dim,
                        .y = y.data(),
                        .post = post.data(),
                        .comb = comb.data(),
                        .streams = x.data(),
                        .out = (in_place ? x : out).data()},
           1 + rows % 3);
    return (in_place ? x : out).Get();
  });
}

TEST_CASE("mtp_combine equals the reference, in place too") {
  RequireInPlaceToo([](On on, int64_t dim, int32_t rows, bool in_place) {
    const Acts e(on, Streams(81, rows, dim)), h(on, Streams(82, rows, 4 * dim)),
        out(on, int64_t{rows} * 4 * dim);
    Launch(on,
           MtpCombineParams{.rows = rows,
                            .hidden = dim,
                            .e = e.data(),
                            .h = h.data(),
                            .streams = (in_place ? h : out).data()},
           1 + rows % 3);
    return (in_place ? h : out).Get();
  });
}

}  // namespace
}  // namespace dsv4::test
