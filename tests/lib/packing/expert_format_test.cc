// SPDX-License-Identifier: Apache-2.0
// Values before and after a change of format are compared by the formats' own words
// (quant_format.h), element by element.
#include "lib/packing/expert_format.h"

#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/catch.h"

namespace dsv4 {
namespace {

TEST_CASE("the dtypes of experts' weights name their formats") {
  CHECK(ExpertFormatOf(DType::kI8) == ExpertFormat::kMxfp4);
  CHECK(ExpertFormatOf(DType::kU8) == ExpertFormat::kNvfp4);
  CHECK(ExpertFormatOf(DType::kF8E4M3) == ExpertFormat::kFp8);
  CHECK_FALSE(ExpertFormatOf(DType::kBF16).has_value());
  CHECK_FALSE(ExpertFormatOf(DType::kOther).has_value());
}

TEST_CASE("powers of two in F32 become E8M0, all others do not") {
  const std::vector<float> powers = {1, .5f, 0x1p127f, 0x1p-126f, 0x1p-127f};
  std::vector<uint8_t> scale(powers.size());
  CHECK_FALSE(ToE8M0(powers, scale.data()).has_value());
  CHECK(scale == std::vector<uint8_t>{127, 126, 254, 1, 0});
  for (const float other : {0.f, -1.f, 3.f, std::nextafter(1.f, 2.f), 0x1p-128f,
                            std::numeric_limits<float>::infinity(), std::nanf("")}) {
    INFO(other);
    CHECK(ToE8M0({1, 2, other}, scale.data()) == 2);
  }
}

TEST_CASE("NVFP4 scales fold where both halves of a run are one power of two") {
  const std::vector<uint8_t> data(32);
  const auto folded = [&](std::vector<uint8_t> halves, float tensor_scale,
                          std::vector<uint8_t>* scale) {
    return FoldToMxfp4(Nvfp4Weight{data.data(), halves.data(), 1, 64, tensor_scale}, scale->data());
  };
  std::vector<uint8_t> scale(2);
  // e4m3 of 1 and of 2^-9, its smallest: 7 << 3 and 1.
  CHECK_FALSE(folded({0x38, 0x38, 1, 1}, 0x1p-20f, &scale).has_value());
  CHECK(scale == std::vector<uint8_t>{107, 98});
  // 1.5 * (2 / 3) is no power of two in doubles; 1.5 * 1.5 is none at all.
  CHECK(folded({0x3c, 0x3c, 0x38, 0x38}, 2.f / 3, &scale) == 0);
  CHECK(folded({0x38, 0x38, 0x3c, 0x3c}, 1, &scale) == 1);
  CHECK(folded({0x38, 0x38, 0x38, 0x40}, 1, &scale) == 1);
  CHECK(folded({0, 0, 0x38, 0x38}, 1, &scale) == 0);        // zero
  CHECK(folded({0xb8, 0xb8, 0x38, 0x38}, 1, &scale) == 0);  // -1
  CHECK(folded({0x38, 0x38, 1, 1}, 0x1p-120f, &scale) == 1);
}

// e4m3 of one of e2m1's numbers times 2^exponent, by search.
uint8_t E4M3Of(double value) {
  for (int code = 0; code < 256; ++code) {
    const float number = E4M3ToFloat(static_cast<uint8_t>(code));
    if (number == value && std::signbit(number) == std::signbit(value)) {
      return static_cast<uint8_t>(code);
    }
  }
  FAIL("no e4m3 number is " << value);
  return 0;
}

// [128, 256]: run r of 32 has e2m1's numbers times 2^(r % 7 - 4), from 2^-5 to 24.
std::vector<uint8_t> FoldableCodes() {
  std::vector<uint8_t> codes;
  for (int run = 0; run < 128 * 8; ++run) {
    for (int i = 0; i < 32; ++i) {
      const auto nibble = static_cast<uint8_t>((i * 5 + run) % 16);
      codes.push_back(E4M3Of(std::ldexp(double{E2M1ToFloat(nibble)}, run % 7 - 4)));
    }
  }
  return codes;
}

TEST_CASE("FP8 folds to the MXFP4 weight of the same values") {
  const std::vector<uint8_t> codes = FoldableCodes(), blocks = {130, 3};
  const Fp8Weight fp8{codes.data(), blocks.data(), 128, 256};
  std::vector<uint8_t> data(codes.size() / 2), scale(codes.size() / 32);
  // The scales of the second block are as small as they may be.
  REQUIRE(FoldToMxfp4(fp8, data.data(), scale.data()) == 7);  // 2^(3 - 4 - 127)
  const std::vector<uint8_t> higher = {130, 10};
  const Fp8Weight folds{codes.data(), higher.data(), 128, 256};
  REQUIRE_FALSE(FoldToMxfp4(folds, data.data(), scale.data()).has_value());
  for (size_t i = 0; i < codes.size(); ++i) {
    const double block = std::ldexp(1., higher[i % 256 / 128] - 127);
    const uint8_t pair = data[i / 2];
    const double value =
        E2M1ToFloat(i % 2 == 0 ? pair & 15 : pair >> 4) * std::ldexp(1., scale[i / 32] - 127);
    if (value != E4M3ToFloat(codes[i]) * block) FAIL("element " << i);
  }
}

TEST_CASE("FP8 values that no MXFP4 scale holds are found by their run") {
  std::vector<uint8_t> data(128 * 128), scale(128 * 8);
  const std::vector<uint8_t> blocks = {127, 127};
  const auto fold = [&](const std::vector<uint8_t>& codes) {
    return FoldToMxfp4(Fp8Weight{codes.data(), blocks.data(), 128, 256}, data.data(), scale.data());
  };
  std::vector<uint8_t> codes = FoldableCodes();
  codes[32 * 100 + 31] = E4M3Of(1.25);
  CHECK(fold(codes) == 100);
  codes.assign(codes.size(), 0);
  CHECK_FALSE(fold(codes).has_value());  // zeros fold under any scale
  codes[32 * 9] = E4M3Of(8);
  codes[32 * 9 + 1] = E4M3Of(1);
  CHECK_FALSE(fold(codes).has_value());
  codes[32 * 9 + 2] = E4M3Of(-.5);  // 8 to 1/2: five powers of two, e2m1 has four
  CHECK(fold(codes) == 9);
}

}  // namespace
}  // namespace dsv4
