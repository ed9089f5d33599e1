// SPDX-License-Identifier: Apache-2.0
// The SIMD pieces of kernels/cpu/row_math-inl.h on every compiled instruction set: the quantisers
// bit for bit against the reference's (which the recorded oracle pins), rounding, the exponential,
// and the rotation.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/kernels/cpu_row_math_test.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/cpu/row_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dsv4 {
namespace HWY_NAMESPACE {

// In place on n elements, a multiple of 8.
void TestExp(double* x, int64_t n) {
  const DD d;
  for (int64_t i = 0; i < n; i += kDoubleLanes) {
    hn::StoreU(ExpNonPositive(hn::LoadU(d, x + i)), d, x + i);
  }
}

void TestSigmoid(double* x, int64_t n) {
  const DD d;
  for (int64_t i = 0; i < n; i += kDoubleLanes) {
    hn::StoreU(Sigmoid(hn::LoadU(d, x + i)), d, x + i);
  }
}

// All ways of rounding: neighbours side by side, from f32 and from double, and the natural order. n
// a multiple of 32.
void TestRound(const double* x, int64_t n, uint16_t* pairs, uint16_t* double_pairs,
               uint16_t* natural) {
  for (int64_t i = 0; i < n; i += kPairLanes) {
    float even[kLanes], odd[kLanes];
    for (int64_t l = 0; l < kLanes; ++l) {
      even[l] = static_cast<float>(x[i + 2 * l]);
      odd[l] = static_cast<float>(x[i + 2 * l + 1]);
    }
    StorePair({hn::LoadU(DF(), even), hn::LoadU(DF(), odd)}, pairs + i);
  }
  for (int64_t i = 0; i < n; i += kDoublePairLanes) {
    double even[kDoubleLanes], odd[kDoubleLanes];
    for (int64_t l = 0; l < kDoubleLanes; ++l) {
      even[l] = x[i + 2 * l];
      odd[l] = x[i + 2 * l + 1];
    }
    StoreDoublePair({hn::LoadU(DD(), even), hn::LoadU(DD(), odd)}, double_pairs + i);
  }
  for (int64_t i = 0; i < n; i += kDoubleLanes) StoreDouble(hn::LoadU(DD(), x + i), natural + i);
}

void TestActQuant64(uint16_t* x) { ActQuantRun<64>(x, x); }
void TestActQuant128(uint16_t* x) { ActQuantRun<128>(x, x); }
void TestFp4ActQuant(uint16_t* x) { Fp4ActQuant(x, 128); }
void TestHadamard(uint16_t* x) { HadamardRow(x); }

}  // namespace HWY_NAMESPACE
}  // namespace dsv4
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cmath>
#include <limits>

#include "kernels/op/quantizers.h"
#include "tests/kernels/random_weights.h"
#include "tests/kernels/tested_backend.h"
#include "tests/support/worst_element.h"

namespace dsv4::test {
namespace {

HWY_EXPORT(TestExp);
HWY_EXPORT(TestSigmoid);
HWY_EXPORT(TestRound);
HWY_EXPORT(TestActQuant64);
HWY_EXPORT(TestActQuant128);
HWY_EXPORT(TestFp4ActQuant);
HWY_EXPORT(TestHadamard);

TEST_CASE("cpu exponential is that of double, and 0 far below") {
  constexpr int64_t kCount = 1 << 16;
  ForEachVariant([] {
    std::vector<double> x(kCount);
    for (int64_t i = 0; i < kCount; ++i) {
      x[static_cast<size_t>(i)] = -static_cast<double>(i) * (707.9 / kCount);
    }
    std::vector<double> y = x;
    HWY_DYNAMIC_DISPATCH(TestExp)(y.data(), kCount);
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double exact = std::exp(x[i]);
      worst = std::max(worst, std::abs(y[i] - exact) / exact);
    }
    REQUIRE(worst <= 1e-14);
    REQUIRE(y[0] == 1);
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    std::vector<double> edge(8, -kInfinity);
    edge[1] = -709;
    edge[2] = -1e300;
    edge[3] = -0.0;
    edge[4] = std::nan("");
    HWY_DYNAMIC_DISPATCH(TestExp)(edge.data(), 8);
    REQUIRE(edge[0] == 0);
    REQUIRE(edge[1] == 0);
    REQUIRE(edge[2] == 0);
    REQUIRE(edge[3] == 1);
    REQUIRE(std::isnan(edge[4]));
    std::vector<double> s = {0,      1,    -1,    50, -50, 88, -88, 1e30,
                             -1e300, 0.3f, -0.3f, 7,  -7,  2,  -2,  9};
    const std::vector<double> in = s;
    HWY_DYNAMIC_DISPATCH(TestSigmoid)(s.data(), 16);
    std::vector<double> sigmoid;
    for (const double v : in) sigmoid.push_back(1 / (1 + std::exp(-v)));
    REQUIRE(FarElements(s, sigmoid, {.relative = 2e-14, .absolute = 1e-300}) == "");
  });
}

TEST_CASE("cpu stores round to f32, then to bf16, each to nearest even") {
  ForEachVariant([] {
    std::vector<double> x;
    for (uint64_t i = 0; i < 4096; ++i) {
      // Every kind of value; half of them ties or next to one, in f32 or by less than f32 sees.
      uint32_t bits = static_cast<uint32_t>(Hash(i));
      if (i % 2) bits = (bits & 0xffff0000u) | (0x7fffu + static_cast<uint32_t>(Hash(~i) % 3));
      const float v = std::bit_cast<float>(bits);
      const double nudge = i % 4 == 3 ? 0x1p-40 * static_cast<double>(Hash(i + 4096) % 3) : 0;
      x.push_back(std::isnan(v) ? 1.0 : v * (1 + nudge));
    }
    x[0] = std::numeric_limits<float>::infinity();
    x[1] = -0.0;
    x[2] = std::numeric_limits<float>::max();
    x[3] = std::numeric_limits<double>::quiet_NaN();
    std::vector<uint16_t> pairs(x.size()), double_pairs(x.size()), natural(x.size());
    HWY_DYNAMIC_DISPATCH(TestRound)
    (x.data(), static_cast<int64_t>(x.size()), pairs.data(), double_pairs.data(), natural.data());
    std::vector<uint16_t> want;
    for (const double v : x) want.push_back(FloatToBf16(static_cast<float>(v)));
    REQUIRE(DifferentBits(pairs, want) == "");
    REQUIRE(DifferentBits(double_pairs, want) == "");
    REQUIRE(DifferentBits(natural, want) == "");
  });
}

// 128 bf16 values within `span` powers of two below 2^top; zeros of both signs among them.
std::vector<uint16_t> QuantInput(uint64_t round, int top, int span) {
  std::vector<uint16_t> x(128);
  for (size_t i = 0; i < x.size(); ++i) {
    const uint64_t h = Hash(round * 1000 + i);
    const int exponent = std::clamp(127 + top - static_cast<int>(h >> 32) % span, 0, 254);
    x[i] = static_cast<uint16_t>((h & 0x807f) | static_cast<uint64_t>(exponent) << 7);
    if (h >> 60 == 0) x[i] &= 0x8000;
  }
  if (round % 5 == 0)
    x[static_cast<size_t>(round % 128)] = static_cast<uint16_t>((127 + top) << 7 | 0x60);
  return x;
}

template <class Simd, class Scalar>
void RequireSameQuantiser(const Simd& simd, const Scalar& scalar, int lowest, int highest) {
  uint64_t round = 0;
  for (int top = lowest; top <= highest; ++top) {
    for (const int span : {2, 6, 14, 30}) {
      std::vector<uint16_t> x = QuantInput(++round, top, span);
      std::vector<float> want;
      for (const uint16_t v : x) want.push_back(Bf16ToFloat(v));
      simd(x.data());
      scalar(want.data());
      std::vector<uint16_t> rounded;
      for (const float v : want) rounded.push_back(FloatToBf16(v));
      INFO("largest 2^" << top << ", span " << span);
      REQUIRE(DifferentBits(x, rounded) == "");
    }
  }
}

TEST_CASE("cpu quantisers equal the reference bit for bit") {
  ForEachVariant([] {
    const auto simd64 = HWY_DYNAMIC_DISPATCH(TestActQuant64);
    RequireSameQuantiser(
        [&](uint16_t* x) {
          simd64(x);
          simd64(x + 64);
        },
        [](float* x) { ActQuant(x, 128, 64); }, -40, 120);
    RequireSameQuantiser(
        HWY_DYNAMIC_DISPATCH(TestActQuant128), [](float* x) { ActQuant(x, 128, 128); }, -40, 120);
    RequireSameQuantiser(
        HWY_DYNAMIC_DISPATCH(TestFp4ActQuant), [](float* x) { Fp4ActQuant(x, 128); }, -120, 120);
  });
}

TEST_CASE("cpu Hadamard rotation is the Sylvester matrix") {
  ForEachVariant([] {
    std::vector<uint16_t> x(128);
    for (int64_t i = 0; i < 128; ++i) x[static_cast<size_t>(i)] = FloatToBf16(Value(81, 0, 0, i));
    std::vector<uint16_t> y = x;
    HWY_DYNAMIC_DISPATCH(TestHadamard)(y.data());
    std::vector<float> got;
    std::vector<double> exact;
    for (uint32_t i = 0; i < 128; ++i) {
      double sum = 0;
      for (uint32_t j = 0; j < 128; ++j) {
        const double v = Bf16ToFloat(x[j]);
        sum += std::popcount(i & j) % 2 ? -v : v;
      }
      got.push_back(Bf16ToFloat(y[i]));
      exact.push_back(sum / std::sqrt(128.0));
    }
    REQUIRE(FarElements(got, exact, {.relative = 0x1p-8, .absolute = 1e-6}) == "");
  });
}

}  // namespace
}  // namespace dsv4::test
#endif  // HWY_ONCE
