// SPDX-License-Identifier: Apache-2.0
// The CUDA backend's hyper-connection and norm operators against the reference in published
// numerics, and the row rule bit for bit.
#include <cmath>

#include "kernels/op/dense.h"
#include "kernels/op/hyper_connection.h"
#include "kernels/reference/manifest.h"
#include "kernels/sm12x/packed_layout.h"
#include "tests/kernels/cuda_launch.h"
#include "tests/kernels/kernel_launch.h"
#include "tests/kernels/random_weights.h"
#include "tests/support/worst_element.h"

namespace dsv4::test {
namespace {

constexpr int32_t kRowCounts[] = {1, 2, 3, 6, 8, 16, 17, 48, 64, 65, 192};
constexpr int64_t kWidths[] = {128, 384, 1024, 4096};
constexpr int32_t kManyRows = 272;

// bf16 rows of very different magnitudes, as bits and as floats.
struct Acts {
  Acts(uint64_t seed, int64_t rows, int64_t width) {
    for (int64_t i = 0; i < rows * width; ++i) {
      const int exponent = static_cast<int>(i / width % 7) * 3 - 9;
      bits.push_back(
          FloatToBf16(std::ldexp(RandomValue(seed, static_cast<uint64_t>(i)), exponent)));
      values.push_back(Bf16ToFloat(bits.back()));
    }
  }
  std::vector<uint16_t> bits;
  std::vector<float> values;
};

// Both round the same sums to bf16, but norms are f32 in one and double in the other: at most 1 in
// 400 elements differs (docs/adr/0022), by one step, or two where two roundings follow each other;
// or by `noise`: an ulp of a mixing number, where streams cancel each other.
void RequireSameRounding(const std::vector<uint16_t>& got, const std::vector<float>& expected,
                         float noise = 0) {
  REQUIRE(got.size() == expected.size());
  size_t apart = 0, worst = 0;
  int worst_steps = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const int steps = std::abs(int{got[i]} - int{FloatToBf16(expected[i])});
    if (steps == 0) continue;
    ++apart;
    if (steps <= worst_steps || std::abs(Bf16ToFloat(got[i]) - expected[i]) <= noise) continue;
    worst_steps = steps;
    worst = i;
  }
  CAPTURE(apart, got.size(), worst, Bf16ToFloat(got[worst]), expected[worst]);
  REQUIRE(worst_steps <= 2);
  REQUIRE(apart <= got.size() / 400);
}

// Both go through a mixing number in f32, whose last bit an exponential may enlarge.
void RequireClose(const std::vector<float>& got, const std::vector<float>& expected) {
  REQUIRE(FarElements(got, expected, {.relative = 4e-6, .absolute = 1e-12}) == "");
}

// All within `bound`, and at most one in `few` not equal.
void RequireNearlyAllEqual(const std::vector<float>& got, const std::vector<float>& expected,
                           ElementBound bound = {.relative = 0x1p-23, .absolute = 1e-36},
                           size_t few = 1000) {
  REQUIRE(FarElements(got, expected, bound) == "");
  size_t apart = 0;
  for (size_t i = 0; i < got.size(); ++i) apart += got[i] != expected[i];
  INFO(apart << " of " << got.size() << " elements are apart");
  REQUIRE(apart <= got.size() / few);
}

// The round trips that the backend's quantised rows stand for.
std::vector<float> Dequantized(const std::vector<uint8_t>& stored, int64_t rows, int64_t dim) {
  std::vector<float> out;
  for (int64_t r = 0; r < rows; ++r) {
    const uint8_t* row = stored.data() + r * sm12x::QuantizedRowBytes(dim);
    for (int64_t i = 0; i < dim; ++i) {
      const uint8_t code = row[sm12x::QuantizedOffset(i / 8 * 8) + i % 8];
      out.push_back(E4M3ToFloat(code) * E8M0ToFloat(row[dim + i / 128]));
    }
  }
  return out;
}

// A bf16 step in front of the quantiser may become a step of e4m3, or of a run's scale.
void RequireSameQuantized(const std::vector<float>& got, const std::vector<float>& expected) {
  RequireNearlyAllEqual(got, expected, {.relative = 0.13, .absolute = 1e-6}, 400);
}

const LaunchOptions kPublished{.numerics = Numerics::kPublished};

template <class T>
DeviceCopy<T> OnDevice(const std::vector<T>& host) {
  return DeviceCopy<T>(host);
}

struct HcWeights {
  HcWeights(int64_t mixes, int64_t width) {
    fn = RandomFloats(71, mixes * width, 0.05f);
    base = RandomFloats(72, mixes);
    scale = {0.7f, 1.3f, 0.9f};
  }
  std::vector<float> fn, base, scale;
};

struct HcPreResult {
  std::vector<uint16_t> normed;
  std::vector<uint8_t> quantized;
  std::vector<float> post, comb;
};

// Of weights in the memory of who launches it; streams and outputs are the caller's to add.
HcPreParams HcPreOf(int32_t rows, int64_t dim, const float* fn, const float* base,
                    const float* scale, const uint16_t* norm) {
  return {.rows = rows,
          .hidden = dim,
          .fn = fn,
          .base = base,
          .scale = scale,
          .hc_eps = 1e-6f,
          .norm_eps = 1e-6f,
          .sinkhorn_iters = 20,
          .norm = norm};
}

HcPreResult HcPreOnDevice(const std::vector<uint16_t>& streams, int64_t first, int32_t rows,
                          int64_t dim, const HcWeights& w, const std::vector<uint16_t>& norm) {
  const std::vector<uint16_t> part(streams.begin() + first * 4 * dim,
                                   streams.begin() + (first + rows) * 4 * dim);
  const auto x = OnDevice(part), norms = OnDevice(norm);
  const auto fn = OnDevice(w.fn), base = OnDevice(w.base), scale = OnDevice(w.scale);
  DeviceCopy<uint16_t> normed(rows * dim);
  DeviceCopy<uint8_t> quantized(rows * sm12x::QuantizedRowBytes(dim));
  DeviceCopy<float> post(rows * 4), comb(rows * 16);
  HcPreParams p = HcPreOf(rows, dim, fn.data(), base.data(), scale.data(), norms.data());
  p.streams = x.data();
  p.normed = normed.data(), p.quantized = quantized.data();
  p.post = post.data(), p.comb = comb.data();
  LaunchCuda(p);
  for (const bool intact : {normed.Intact(), quantized.Intact(), post.Intact(), comb.Intact()}) {
    REQUIRE(intact);
  }
  return {normed.Download(), quantized.Download(), post.Download(), comb.Download()};
}

struct HcPreValues {
  std::vector<float> normed, quantized, post, comb;
};

HcPreValues HcPreOfReference(const std::vector<float>& streams, int32_t rows, int64_t dim,
                             const HcWeights& w, const std::vector<uint16_t>& norm) {
  const auto count = static_cast<size_t>(rows), width = static_cast<size_t>(rows * dim);
  HcPreValues out{std::vector<float>(width), std::vector<float>(width),
                  std::vector<float>(count * 4), std::vector<float>(count * 16)};
  HcPreParams p = HcPreOf(rows, dim, w.fn.data(), w.base.data(), w.scale.data(), norm.data());
  p.streams = streams.data();
  p.normed = out.normed.data(), p.quantized = out.quantized.data();
  p.post = out.post.data(), p.comb = out.comb.data();
  LaunchKernel(ReferenceManifest(), p, kPublished);
  return out;
}

TEST_CASE("sm12x hc_pre equals the reference and keeps the row rule") {
  for (const int64_t dim : kWidths) {
    // More than the first kernel's blocks take at once.
    const int32_t kRows = dim == kWidths[0] ? 1100 : kManyRows;
    const Acts streams(73, kRows, 4 * dim);
    const HcWeights w(24, 4 * dim);
    const std::vector<uint16_t> norm = RandomNorm(74, dim);
    const HcPreValues expected = HcPreOfReference(streams.values, kRows, dim, w, norm);
    const HcPreResult whole = HcPreOnDevice(streams.bits, 0, kRows, dim, w, norm);
    INFO("hidden " << dim);
    RequireSameRounding(whole.normed, expected.normed, 2e-7f);
    RequireSameQuantized(Dequantized(whole.quantized, kRows, dim), expected.quantized);
    RequireClose(whole.post, expected.post);
    RequireClose(whole.comb, expected.comb);
    for (const int32_t rows : {1, 2, 3, 6, 8, 16, 17, 48, 64, 65, 192, 256, 257, 300}) {
      if (rows > kRows) continue;
      const int64_t first = kRows - rows;
      const HcPreResult part = HcPreOnDevice(streams.bits, first, rows, dim, w, norm);
      INFO(rows << " rows");
      REQUIRE(
          std::equal(part.normed.begin(), part.normed.end(), whole.normed.begin() + first * dim));
      REQUIRE(std::equal(part.quantized.begin(), part.quantized.end(),
                         whole.quantized.begin() + first * sm12x::QuantizedRowBytes(dim)));
      REQUIRE(std::equal(part.comb.begin(), part.comb.end(), whole.comb.begin() + first * 16));
      REQUIRE(std::equal(part.post.begin(), part.post.end(), whole.post.begin() + first * 4));
    }
  }
}

// Small whole numbers, so that any order of sums gives the same mixing numbers: what is left is the
// noise of sigmoid, softmax and Sinkhorn, whose steps do not undo each other's where logits are far
// apart. Results are the nearest floats; about one in 10^5 is the next one.
TEST_CASE("sm12x hc_pre gives the nearest floats to the reference's weights") {
  constexpr int32_t kRows = 1000;
  constexpr int64_t kDim = 128;
  std::vector<uint16_t> bits;
  std::vector<float> values;
  for (uint64_t i = 0; i < kRows * 4 * kDim; ++i) {
    values.push_back(std::round(8 * RandomValue(91, i)));
    bits.push_back(FloatToBf16(values.back()));
  }
  HcWeights w(24, 4 * kDim);
  for (float& value : w.fn) value = std::round(value * 320) / 16;  // up to 1
  const std::vector<uint16_t> norm = RandomNorm(92, kDim);
  for (const float spread : {0.02f, 0.1f, 0.4f, 1.6f}) {  // logits of 0.3 to 20
    w.scale = {spread, spread, spread};
    const HcPreValues expected = HcPreOfReference(values, kRows, kDim, w, norm);
    const HcPreResult got = HcPreOnDevice(bits, 0, kRows, kDim, w, norm);
    INFO("spread " << spread);
    RequireNearlyAllEqual(got.post, expected.post);
    RequireNearlyAllEqual(got.comb, expected.comb);
  }
}

// Rows of both the kernel that makes the update itself and the one that leaves it to hc_post.
TEST_CASE("sm12x hc_pre with an update is hc_post and hc_pre, bit for bit") {
  for (const int64_t dim : kWidths) {
    const HcWeights w(24, 4 * dim);
    const auto fn = OnDevice(w.fn), base = OnDevice(w.base), scale = OnDevice(w.scale);
    const auto norm = OnDevice(RandomNorm(74, dim));
    for (const int32_t rows :
         {1, 2, 3, 6, 7, 8, 9, 15, 16, 17, 33, 48, 64, 65, 192, kManyRows, 700}) {
      if (rows > kManyRows && dim > kWidths[0]) continue;
      const Acts streams(93, rows, 4 * dim), ys(94, rows, dim);
      const auto y = OnDevice(ys.bits);
      const auto run = [&](bool ahead, bool in_place) {
        auto x = OnDevice(streams.bits);
        auto post = OnDevice(RandomFloats(95, rows * 4)),
             comb = OnDevice(RandomFloats(96, rows * 16));
        DeviceCopy<uint16_t> out(rows * 4 * dim), normed(rows * dim);
        DeviceCopy<uint8_t> quantized(rows * sm12x::QuantizedRowBytes(dim));
        HcPreParams p = HcPreOf(rows, dim, fn.data(), base.data(), scale.data(), norm.data());
        p.streams = x.data();
        p.normed = normed.data(), p.quantized = quantized.data();
        p.post = post.data(), p.comb = comb.data();
        p.update = {y.data(), post.data(), comb.data(), in_place ? x.data() : out.data()};
        if (ahead) {
          LaunchCuda(UpdateOf(p));
          p = AfterUpdate(p);
        }
        LaunchCuda(p);
        for (const bool intact : {x.Intact(), out.Intact(), normed.Intact(), quantized.Intact(),
                                  post.Intact(), comb.Intact()}) {
          REQUIRE(intact);
        }
        return std::make_pair(
            in_place ? x.Download() : out.Download(),
            HcPreResult{normed.Download(), quantized.Download(), post.Download(), comb.Download()});
      };
      const auto [made, expected] = run(true, false);
      for (const bool in_place : {false, true}) {
        const auto [got_made, got] = run(false, in_place);
        INFO("hidden " << dim << ", " << rows << " rows, in place " << in_place);
        REQUIRE(got_made == made);
        REQUIRE(got.normed == expected.normed);
        REQUIRE(got.quantized == expected.quantized);
        REQUIRE(got.post == expected.post);
        REQUIRE(got.comb == expected.comb);
      }
    }
  }
}

TEST_CASE("sm12x hc_head equals the reference and keeps the row rule, of chosen rows too") {
  for (const int64_t dim : kWidths) {
    constexpr int32_t kRows = 192;
    const Acts streams(75, kRows, 4 * dim);
    const HcWeights w(4, 4 * dim);
    const std::vector<uint16_t> norm = RandomNorm(76, dim);
    std::vector<float> expected(static_cast<size_t>(kRows * dim));
    HcHeadParams p{.rows = kRows,
                   .hidden = dim,
                   .streams = streams.values.data(),
                   .fn = w.fn.data(),
                   .base = w.base.data(),
                   .scale = w.scale.data(),
                   .hc_eps = 1e-6f,
                   .norm_eps = 1e-6f,
                   .norm = norm.data(),
                   .normed = expected.data()};
    std::vector<float> expected_mixed(expected.size());
    p.mixed = expected_mixed.data();
    LaunchKernel(ReferenceManifest(), p, kPublished);
    p.mixed = nullptr;
    const auto x = OnDevice(streams.bits), norms = OnDevice(norm);
    const auto fn = OnDevice(w.fn), base = OnDevice(w.base), scale = OnDevice(w.scale);
    p.streams = x.data();
    p.fn = fn.data();
    p.base = base.data();
    p.scale = scale.data();
    p.norm = norms.data();
    const auto run = [&](int32_t rows, const int32_t* row_of) {
      DeviceCopy<uint16_t> normed(rows * dim);
      p.rows = rows;
      p.row_of = row_of;
      p.normed = normed.data();
      LaunchCuda(p);
      REQUIRE(normed.Intact());
      return normed.Download();
    };
    INFO("hidden " << dim);
    const std::vector<uint16_t> whole = run(kRows, nullptr);
    RequireSameRounding(whole, expected, 2e-7f);
    const DeviceCopy<uint16_t> mixed(kRows * dim);
    p.mixed = mixed.data();
    REQUIRE(run(kRows, nullptr) == whole);
    p.mixed = nullptr;
    REQUIRE(mixed.Intact());
    RequireSameRounding(mixed.Download(), expected_mixed, 2e-7f);
    for (const int32_t rows : kRowCounts) {
      INFO(rows << " rows");
      const std::vector<uint16_t> part = run(rows, nullptr);
      REQUIRE(std::equal(part.begin(), part.end(), whole.begin()));
      std::vector<int32_t> chosen;  // in another order, some of them twice
      std::vector<uint16_t> want;
      for (int32_t r = 0; r < rows; ++r) {
        chosen.push_back((rows + r * r) % kRows);
        const auto row = whole.begin() + chosen.back() * dim;
        want.insert(want.end(), row, row + dim);
      }
      const auto row_of = OnDevice(chosen);
      REQUIRE(run(rows, row_of.data()) == want);
    }
  }
}

TEST_CASE("sm12x hc_head takes the streams' means, as parts of quantised rows") {
  for (const int64_t dim : kWidths) {
    for (const int32_t rows : kRowCounts) {
      INFO("hidden " << dim << ", " << rows << " rows");
      const int64_t width = 3 * dim;
      const Acts streams(97, rows, 4 * dim), others(98, rows, 4 * dim);
      std::vector<float> expected(static_cast<size_t>(rows * width));
      const auto x = OnDevice(streams.bits), y = OnDevice(others.bits);
      const DeviceCopy<uint8_t> stored(rows * sm12x::QuantizedRowBytes(width));
      for (const int64_t part : {1, 2, 0}) {
        HcHeadParams p{.rows = rows,
                       .hidden = dim,
                       .streams = (part == 1 ? others : streams).values.data(),
                       .quantized = expected.data(),
                       .quantized_width = width,
                       .quantized_column = part * dim};
        LaunchKernel(ReferenceManifest(), p, kPublished);
        p.streams = (part == 1 ? y : x).data();
        p.quantized = stored.data();
        LaunchCuda(p);
      }
      REQUIRE(stored.Intact());
      RequireSameQuantized(Dequantized(stored.Download(), rows, width), expected);
    }
  }
}

TEST_CASE("sm12x hc_post equals the reference, in place too") {
  for (const int64_t dim : kWidths) {
    for (const int32_t rows : kRowCounts) {
      const Acts streams(77, rows, 4 * dim), y(78, rows, dim);
      const std::vector<float> post = RandomFloats(79, rows * 4),
                               comb = RandomFloats(80, rows * 16);
      std::vector<float> expected(streams.values.size());
      HcPostParams p{.rows = rows,
                     .hidden = dim,
                     .y = y.values.data(),
                     .post = post.data(),
                     .comb = comb.data(),
                     .streams = streams.values.data(),
                     .out = expected.data()};
      LaunchKernel(ReferenceManifest(), p, kPublished);
      const auto x = OnDevice(streams.bits), ys = OnDevice(y.bits);
      const auto posts = OnDevice(post), combs = OnDevice(comb);
      DeviceCopy<uint16_t> out(rows * 4 * dim);
      p.y = ys.data();
      p.post = posts.data();
      p.comb = combs.data();
      p.streams = x.data();
      p.out = out.data();
      LaunchCuda(p);
      REQUIRE(out.Intact());
      RequireSameRounding(out.Download(), expected);
      p.out = x.data();
      LaunchCuda(p);
      REQUIRE(x.Download() == out.Download());
    }
  }
}

TEST_CASE("sm12x mtp_combine equals the reference, in place too") {
  for (const int64_t dim : kWidths) {
    for (const int32_t rows : kRowCounts) {
      const Acts e(81, rows, dim), h(82, rows, 4 * dim);
      std::vector<float> expected(h.values.size());
      MtpCombineParams p{.rows = rows,
                         .hidden = dim,
                         .e = e.values.data(),
                         .h = h.values.data(),
                         .streams = expected.data()};
      LaunchKernel(ReferenceManifest(), p, kPublished);
      const auto es = OnDevice(e.bits), hs = OnDevice(h.bits);
      DeviceCopy<uint16_t> streams(rows * 4 * dim);
      p.e = es.data();
      p.h = hs.data();
      p.streams = streams.data();
      LaunchCuda(p);
      REQUIRE(streams.Intact());
      RequireSameRounding(streams.Download(), expected);
      p.streams = hs.data();
      LaunchCuda(p);
      REQUIRE(hs.Intact());
      REQUIRE(hs.Download() == streams.Download());
    }
  }
}

TEST_CASE("sm12x rms_norm equals the reference, with either output left out") {
  for (const int64_t dim : kWidths) {
    for (const int32_t rows : kRowCounts) {
      const Acts x(83, rows, dim);
      const std::vector<uint16_t> weight = RandomNorm(84, dim);
      std::vector<float> normed(x.values.size()), quantized(x.values.size());
      RmsNormParams p{.rows = rows,
                      .dim = dim,
                      .x = x.values.data(),
                      .weight = weight.data(),
                      .eps = 1e-6f,
                      .normed = normed.data(),
                      .quantized = quantized.data()};
      LaunchKernel(ReferenceManifest(), p, kPublished);
      const auto xs = OnDevice(x.bits), weights = OnDevice(weight);
      DeviceCopy<uint16_t> out(rows * dim);
      DeviceCopy<uint8_t> stored(rows * sm12x::QuantizedRowBytes(dim));
      p.x = xs.data();
      p.weight = weights.data();
      p.normed = out.data();
      p.quantized = nullptr;
      LaunchCuda(p);
      RequireSameRounding(out.Download(), normed);
      p.normed = nullptr;
      p.quantized = stored.data();
      LaunchCuda(p);
      REQUIRE(out.Intact());
      REQUIRE(stored.Intact());
      RequireSameQuantized(Dequantized(stored.Download(), rows, dim), quantized);
    }
  }
}

TEST_CASE("sm12x embed_rows copies bits") {
  for (const int64_t dim : {8, 9, 136, 4096}) {
    const Acts embed(85, 50, dim);
    const auto table = OnDevice(embed.bits);
    for (const int32_t rows : kRowCounts) {
      std::vector<int32_t> tokens;
      for (int32_t r = 0; r < rows; ++r) tokens.push_back((49 + 31 * r) % 50);
      const auto chosen = OnDevice(tokens);
      for (const int copies : {1, 4}) {
        INFO("hidden " << dim << ", " << rows << " rows, " << copies << " copies");
        DeviceCopy<uint16_t> out(rows * copies * dim);
        LaunchCuda(EmbedRowsParams{.rows = rows,
                                   .copies = copies,
                                   .tokens = chosen.data(),
                                   .embed = {table.data(), 50, dim},
                                   .out = out.data()});
        REQUIRE(out.Intact());
        std::vector<uint16_t> want;
        for (const int32_t token : tokens) {
          const auto row = embed.bits.begin() + token * dim;
          for (int copy = 0; copy < copies; ++copy) want.insert(want.end(), row, row + dim);
        }
        REQUIRE(out.Download() == want);
        // The same tokens, all of them or the last chosen by an earlier kernel; none is token 0.
        std::vector<int32_t> later, places = tokens;
        for (size_t r = 0; r < tokens.size(); ++r) {
          later.push_back(tokens[tokens.size() - 1 - r] == 0 ? -1 : tokens[tokens.size() - 1 - r]);
          places[r] = -static_cast<int32_t>(tokens.size() - r);
        }
        const DeviceCopy<int32_t> chosen_later(later), chosen_places(places);
        DeviceCopy<uint16_t> again(rows * copies * dim);
        LaunchCuda(EmbedRowsParams{.rows = rows,
                                   .copies = copies,
                                   .tokens = chosen_places.data(),
                                   .embed = {table.data(), 50, dim},
                                   .out = again.data(),
                                   .chosen = chosen_later.data()});
        REQUIRE(again.Download() == want);
      }
    }
  }
}

}  // namespace
}  // namespace dsv4::test
