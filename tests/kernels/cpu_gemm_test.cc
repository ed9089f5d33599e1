// SPDX-License-Identifier: Apache-2.0
// The SIMD backend's linears and output groups against plain scalar arithmetic, for every variant,
// edge shapes and extreme scales; and the row rule bit for bit.
#include "kernels/cpu/entries.h"
#include "kernels/op/dense.h"
#include "tests/kernels/kernel_launch.h"
#include "tests/kernels/matrix_truth.h"

namespace dsv4::test {
namespace {

constexpr uint16_t kPoison = 0xdead;
constexpr int32_t kMostRows = 129;

// M rows of y = x w^T from `first` on, with a poisoned margin that must stay.
template <class Matrix>
std::vector<uint16_t> RunFp8(const Matrix& w, const std::vector<uint16_t>& x, int64_t first,
                             int32_t rows, int threads) {
  std::vector<uint16_t> y(rows * w.n + 64, kPoison);
  LinearFp8Params p;
  p.rows = rows;
  p.k = w.k;
  p.x = x.data() + first * w.k;
  p.part_count = 1;
  p.parts[0] = {w.View(), y.data()};
  LaunchKernel({&kCpuLinearFp8, 1}, p, {.numerics = Numerics::kPublished, .threads = threads});
  REQUIRE(std::all_of(y.begin() + static_cast<int64_t>(rows * w.n), y.end(),
                      [](uint16_t element) { return element == kPoison; }));
  y.resize(rows * w.n);
  return y;
}

// y is the rounding of something within the bound of the truth.
bool IsRounded(uint16_t y, const DotTruth& truth) {
  const double value = Bf16ToFloat(y);
  return value >= RoundBf16(truth.value - truth.Bound()) &&
         value <= RoundBf16(truth.value + truth.Bound());
}

template <class Matrix>
void CheckFp8(const Matrix& w, const std::vector<uint16_t>& x, int32_t rows) {
  std::vector<DotTruth> truth;
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t o = 0; o < w.n; ++o) truth.push_back(Dot(&x[t * w.k], w, o));
  }
  ForEachVariant([&](const std::string& name) {
    const std::vector<uint16_t> y = RunFp8(w, x, 0, rows, 2);
    for (size_t i = 0; i < y.size(); ++i) {
      INFO(name << " [" << w.n << ", " << w.k << "] row " << i / w.n << " output " << i % w.n
                << ": " << Bf16ToFloat(y[i]) << " for " << truth[i].value);
      if (!IsRounded(y[i], truth[i])) FAIL();
    }
    for (const int32_t m : {1, 2, 3, 4, 5, 6, 7, 17, 64}) {
      if (m > rows) continue;
      for (const int64_t first : {int64_t{0}, int64_t{rows} - m}) {
        INFO(name << " [" << w.n << ", " << w.k << "]: " << m << " rows from " << first);
        const std::vector<uint16_t> part = RunFp8(w, x, first, m, 1 + m % 3);
        REQUIRE(std::equal(part.begin(), part.end(), y.begin() + first * w.n));
      }
    }
  });
}

TEST_CASE("linear_fp8 is the scalar sum at edge shapes, whatever the rows and threads") {
  Rng rng(1);
  const int64_t shapes[][2] = {{700, 128}, {200, 256}, {1, 128},
                               {130, 640}, {37, 1536}, {20, 4096}};
  for (const auto& [n, k] : shapes) {
    const Fp8Matrix w(n, k, rng);
    CheckFp8(w, RandomQuantisedRows(kMostRows, k, rng), kMostRows);
  }
}

TEST_CASE("linear_fp8 takes F32 scales") {
  Rng rng(9);
  const int64_t shapes[][2] = {{140, 128}, {37, 640}, {300, 1536}};
  for (const auto& [n, k] : shapes) {
    const Fp8F32Matrix w(n, k, rng);
    CheckFp8(w, RandomQuantisedRows(67, k, rng), 67);
  }
}

TEST_CASE("linear_fp8 shares the input among parts") {
  Rng rng(2);
  const Fp8Matrix a(256, 256, rng), b(72, 256, rng), c(129, 256, rng);
  const std::vector<uint16_t> x = RandomQuantisedRows(19, 256, rng);
  for (const int32_t rows : {1, 19}) {
    std::vector<uint16_t> ya(rows * a.n), yb(rows * b.n), yc(rows * c.n);
    LinearFp8Params p;
    p.rows = rows;
    p.k = 256;
    p.x = x.data();
    p.part_count = 3;
    p.parts = {{{a.View(), ya.data()}, {b.View(), yb.data()}, {c.View(), yc.data()}}};
    LaunchKernel({&kCpuLinearFp8, 1}, p, {.numerics = Numerics::kPublished, .threads = 3});
    REQUIRE(ya == RunFp8(a, x, 0, rows, 1));
    REQUIRE(yb == RunFp8(b, x, 0, rows, 1));
    REQUIRE(yc == RunFp8(c, x, 0, rows, 1));
  }
}

TEST_CASE("linear_fp8 loses no subnormal weight") {
  Rng rng(3);
  Fp8Matrix w(33, 256, rng);
  for (uint8_t& byte : w.data) byte &= 0x87;
  CheckFp8(w, RandomQuantisedRows(9, 256, rng), 9);
}

TEST_CASE("linear_fp8 holds at extreme scales") {
  Rng rng(4);
  const auto scaled_rows = [&rng](int exponent) {
    std::vector<uint16_t> x = RandomQuantisedRows(9, 512, rng);
    for (uint16_t& bits : x) bits = ToBf16(std::ldexp(Bf16ToFloat(bits), exponent));
    return x;
  };
  Fp8Matrix w(140, 512, rng);
  SECTION("all tiny") {
    for (uint8_t& byte : w.scale) byte = static_cast<uint8_t>(rng() % 3);
    CheckFp8(w, scaled_rows(100), 9);
  }
  SECTION("all huge") {
    for (uint8_t& byte : w.scale) byte = static_cast<uint8_t>(254 - rng() % 3);
    CheckFp8(w, scaled_rows(-100), 9);
  }
  SECTION("far apart in one row: the small one is nothing") {
    w.scale = {1, 127, 1, 60, 254, 180, 200, 127};
    CheckFp8(w, scaled_rows(-60), 9);
  }
  SECTION("far apart in one row: the small one is all") {
    w.scale = {1, 200, 1, 1, 5, 254, 5, 5};
    for (int64_t o = 0; o < w.n; ++o) std::fill_n(&w.data[o * 512 + 128], 128, uint8_t{0});
    CheckFp8(w, scaled_rows(100), 9);
  }
  SECTION("on both sides of where scales fold into the weights") {
    w.scale = {127 + 48, 127 - 48, 127 + 48, 127, 127 + 49, 127 - 48, 127, 127 - 49};
    CheckFp8(w, scaled_rows(0), 9);
  }
}

TEST_CASE("linear_fp8 passes NaN on to its outputs alone") {
  Rng rng(5);
  Fp8Matrix w(20, 128, rng);
  w.data[7 * 128 + 100] = 0xff;
  const std::vector<uint16_t> x = RandomQuantisedRows(9, 128, rng);
  ForEachVariant([&](const std::string& name) {
    for (const int32_t rows : {1, 9}) {
      const std::vector<uint16_t> y = RunFp8(w, x, 0, rows, 1);
      std::vector<size_t> broken, column;
      for (size_t i = 0; i < y.size(); ++i) {
        if (std::isnan(Bf16ToFloat(y[i]))) broken.push_back(i);
        if (i % 20 == 7) column.push_back(i);
      }
      INFO(name);
      REQUIRE(broken == column);
    }
  });
}

TEST_CASE("linear_bf16 is the scalar sum, rounded or in f32, whatever the rows and threads") {
  Rng rng(6);
  const int64_t shapes[][2] = {{200, 256}, {8, 1024}, {3, 384}, {131, 128}};
  for (const auto& shape : shapes) {
    const int64_t n = shape[0], k = shape[1];
    const Bf16Matrix w(n, k, rng), v(n + 9, k, rng);
    const std::vector<uint16_t> x = RandomRows(67, k, rng);
    const auto run = [&](int64_t first, int32_t rows, int threads, std::vector<float>& exact,
                         std::vector<uint16_t>& rounded) {
      exact.assign(rows * n, NAN);
      rounded.assign(rows * v.n, kPoison);
      LinearBf16Params p;
      p.rows = rows;
      p.k = k;
      p.x = x.data() + first * k;
      p.part_count = 2;
      p.parts[0] = {w.View(), exact.data(), false};
      p.parts[1] = {v.View(), rounded.data(), true};
      LaunchKernel({&kCpuLinearBf16, 1}, p, {.numerics = Numerics::kPublished, .threads = threads});
    };
    ForEachVariant([&](const std::string& name) {
      std::vector<float> exact, exact_part;
      std::vector<uint16_t> rounded, rounded_part;
      run(0, 67, 2, exact, rounded);
      for (int64_t t = 0; t < 67; ++t) {
        for (int64_t o = 0; o < v.n; ++o) {
          INFO(name << " [" << n << ", " << k << "] row " << t << " output " << o);
          if (!IsRounded(rounded[t * v.n + o], Dot(&x[t * k], v, o))) FAIL();
          if (o >= n) continue;
          const DotTruth truth = Dot(&x[t * k], w, o);
          // The chains of a wide sum are short.
          if (!(std::abs(exact[t * n + o] - truth.value) <= truth.magnitude * 0x1p-23)) FAIL();
        }
      }
      for (const int32_t m : {1, 2, 5, 13}) {
        INFO(name << " [" << n << ", " << k << "]: the last " << m << " rows");
        run(67 - m, m, 1 + m % 3, exact_part, rounded_part);
        REQUIRE(std::equal(exact_part.begin(), exact_part.end(), exact.end() - m * n));
        REQUIRE(std::equal(rounded_part.begin(), rounded_part.end(), rounded.end() - m * v.n));
      }
    });
  }
}

template <class Matrix>
std::vector<uint16_t> RunGroups(const Matrix& w, int32_t groups, const std::vector<uint16_t>& o,
                                int64_t first, int32_t rows, int threads) {
  std::vector<uint16_t> y(rows * w.n, kPoison);
  OutputGroupsParams p;
  p.rows = rows;
  p.groups = groups;
  p.rank = w.n / groups;
  p.group_width = w.k;
  p.wo_a = w.View();
  p.o = o.data() + first * groups * w.k;
  p.y = y.data();
  LaunchKernel({&kCpuOutputGroups, 1}, p, {.numerics = Numerics::kPublished, .threads = threads});
  return y;
}

constexpr int32_t kTestedGroups = 3;
constexpr int64_t kTestedWidth = 512;

template <class Matrix>
void CheckGroups(Matrix w, int64_t rank, Rng& rng) {
  constexpr int32_t kGroups = kTestedGroups, kRows = 37;
  constexpr int64_t kWidth = kTestedWidth;
  const std::vector<uint16_t> o = RandomRows(kRows * kGroups, kWidth, rng);
  std::vector<double> truth(kRows * w.n);
  for (int64_t t = 0; t < kRows; ++t) {
    for (int64_t i = 0; i < w.n; ++i) {
      truth[t * w.n + i] = RoundBf16(Dot(&o[(t * kGroups + i / rank) * kWidth], w, i).value);
    }
    ActQuant(&truth[t * w.n], w.n);
  }
  ForEachVariant([&](const std::string& name) {
    const std::vector<uint16_t> y = RunGroups(w, kGroups, o, 0, kRows, 2);
    // A sum close to a tie of bf16 may round the other way, and then a value close to a tie of
    // e4m3 (or the run's scale) too: seldom, and by one step.
    int64_t differ = 0;
    for (size_t i = 0; i < y.size(); ++i) {
      const double value = Bf16ToFloat(y[i]);
      differ += value != truth[i];
      INFO(name << " row " << i / w.n << " output " << i % w.n << ": " << value << " for "
                << truth[i]);
      if (std::abs(value - truth[i]) > 0.13 * std::abs(truth[i]) + 1e-2) FAIL();
    }
    INFO(name << ": " << differ << " of " << y.size() << " differ");
    REQUIRE(differ <= static_cast<int64_t>(y.size()) / 500);
    for (const int32_t m : {1, 2, 5, 13}) {
      INFO(name << ": " << m << " rows from 11");
      const std::vector<uint16_t> part = RunGroups(w, kGroups, o, 11, m, 1 + m % 3);
      REQUIRE(std::equal(part.begin(), part.end(), y.begin() + 11 * w.n));
    }
  });
}

TEST_CASE("output_groups multiplies each group by its own weight, rounds and quantises") {
  Rng rng(7);
  for (const int64_t rank : {128, 256}) {
    CheckGroups(Fp8Matrix(kTestedGroups * rank, kTestedWidth, rng), rank, rng);
  }
}

TEST_CASE("output_groups rounds elements under F32 scales to bf16") {
  Rng rng(10);
  Fp8F32Matrix w(kTestedGroups * 128, kTestedWidth, rng);
  w.rounded = true;
  CheckGroups(w, 128, rng);
}

TEST_CASE("output_groups quantises bit for bit") {
  // With the identity for a weight the output is the quantised input.
  Rng rng(8);
  Fp8Matrix identity(128, 128, rng);
  std::fill(identity.data.begin(), identity.data.end(), uint8_t{0});
  for (int64_t i = 0; i < 128; ++i) identity.data[i * 128 + i] = 0x38;
  identity.scale = {127};
  constexpr int32_t kRows = 400;
  std::vector<uint16_t> o(kRows * 128);
  for (int64_t t = 0; t < kRows; ++t) {
    // Rows from far below the floor of the scale to far above 1; each a dense walk over bf16
    // values, so that ties, subnormals and clamped values all occur.
    const int top = static_cast<int>(rng() % 60) + 95;
    for (int64_t i = 0; i < 128; ++i) {
      const uint64_t word = rng();
      const int exponent = std::max(1, top - static_cast<int>(word % 20));
      o[t * 128 + i] =
          static_cast<uint16_t>((word >> 63) << 15 | exponent << 7 | (word >> 20 & 127));
    }
  }
  std::vector<double> truth(o.size());
  for (size_t i = 0; i < o.size(); ++i) truth[i] = Bf16ToFloat(o[i]);
  ActQuant(truth.data(), static_cast<int64_t>(truth.size()));
  ForEachVariant([&](const std::string& name) {
    const std::vector<uint16_t> y = RunGroups(identity, 1, o, 0, kRows, 1);
    for (size_t i = 0; i < y.size(); ++i) {
      INFO(name << " row " << i / 128 << " value " << i % 128 << ": " << Bf16ToFloat(o[i])
                << " becomes " << Bf16ToFloat(y[i]) << ", not " << truth[i]);
      if (Bf16ToFloat(y[i]) != truth[i]) FAIL();
    }
  });
}

}  // namespace
}  // namespace dsv4::test
