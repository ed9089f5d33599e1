// SPDX-License-Identifier: Apache-2.0
#include "lib/packing/expert_format.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "lib/base/checked_math.h"

namespace dsv4 {
namespace {

constexpr int kE8M0Bias = 127;

// The E8M0 byte of a number, -1 where there is none.
int E8M0ByteOf(double number) {
  if (!(number > 0) || std::isinf(number)) return -1;
  int exponent = 0;
  if (std::frexp(number, &exponent) != 0.5) return -1;
  const int byte = exponent - 1 + kE8M0Bias;
  return byte >= 0 && byte <= 254 ? byte : -1;
}

// An e4m3 number as an odd integer times a power of two; zero as 0.
struct OddPower {
  int odd = 0, exponent = 0;
};

constexpr std::array<OddPower, 128> kOddPowers = [] {
  std::array<OddPower, 128> powers{};
  for (int code = 1; code < 128; ++code) {
    const int field = code >> 3, mantissa = code & 7;
    const auto integer = static_cast<unsigned>(field == 0 ? mantissa : 8 + mantissa);
    const int zeros = std::countr_zero(integer);
    powers[static_cast<size_t>(code)] = {static_cast<int>(integer >> zeros),
                                         std::max(field, 1) - 10 + zeros};
  }
  return powers;
}();

// The e2m1 code of odd * 2^exponent, which is one of its numbers.
int E2M1CodeOf(const OddPower& number) {
  if (number.odd == 0) return 0;
  // 1/2, 1, 2, 4 and 3/2, 3, 6.
  constexpr int kOne[] = {1, 2, 4, 6}, kThree[] = {3, 5, 7};
  return number.odd == 1 ? kOne[number.exponent + 1] : kThree[number.exponent + 1];
}

// The exponent with which e2m1 can represent all 32 numbers.
std::optional<int> CommonExponent(const uint8_t* codes) {
  int low = -1000, high = 1000;
  for (int64_t i = 0; i < kFp4Run; ++i) {
    const OddPower& number = kOddPowers[codes[i] & 127];
    if (number.odd == 0) continue;
    if (number.odd > 3) return std::nullopt;
    low = std::max(low, number.exponent - (number.odd == 1 ? 2 : 1));
    high = std::min(high, number.exponent + 1);
  }
  if (low > high) return std::nullopt;
  return low == -1000 ? 0 : low;
}

}  // namespace

std::optional<ExpertFormat> ExpertFormatOf(DType dtype) {
  switch (dtype) {
    case DType::kI8:
      return ExpertFormat::kMxfp4;
    case DType::kU8:
      return ExpertFormat::kNvfp4;
    case DType::kF8E4M3:
      return ExpertFormat::kFp8;
    default:
      return std::nullopt;
  }
}

StoredBytes StoredBytesOf(const ExpertMatrix& m) {
  const int64_t elements = m.n * m.k;
  switch (m.format) {
    case ExpertFormat::kNvfp4:
      return {elements / 2, elements / kNvfp4Run};
    case ExpertFormat::kFp8:
      return {elements, CeilDiv(m.n, kFp8Block) * CeilDiv(m.k, kFp8Block) *
                            (m.f32_scale != nullptr ? int64_t{sizeof(float)} : 1)};
    case ExpertFormat::kBlocks:
      return {m.n * BlockBytes(m.blocks, m.k), 0};
    case ExpertFormat::kMxfp4:
      break;
  }
  return {elements / 2, elements / kFp4Run};
}

const uint8_t* ScaleBytesOf(const ExpertMatrix& m) {
  return m.f32_scale != nullptr ? reinterpret_cast<const uint8_t*>(m.f32_scale) : m.scale;
}

int64_t SampleRows(const ExpertMatrix& stored) {
  constexpr int64_t kMostBytes = 8192;
  return std::min({stored.n, std::max<int64_t>(kMostBytes / stored.k, 1), kFp8Block});
}

ExpertFormat DeviceFormatOf(const ExpertMatrix& stored, int64_t rows) {
  if (stored.format == ExpertFormat::kMxfp4 || stored.format == ExpertFormat::kBlocks) {
    return stored.format;
  }
  ExpertMatrix first = stored;
  first.n = rows;
  std::vector<uint8_t> scale(static_cast<size_t>(first.n * first.k / kFp4Run));
  if (stored.format == ExpertFormat::kNvfp4) {
    return FoldToMxfp4(first.nvfp4(), scale.data()) ? stored.format : ExpertFormat::kMxfp4;
  }
  std::vector<uint8_t> data(static_cast<size_t>(first.n * first.k / 2));
  std::vector<uint8_t> e8m0(
      static_cast<size_t>(CeilDiv(first.n, kFp8Block) * CeilDiv(first.k, kFp8Block)));
  if (first.f32_scale != nullptr) {
    if (ToE8M0({first.f32_scale, e8m0.size()}, e8m0.data())) return stored.format;
    first.f32_scale = nullptr;
    first.scale = e8m0.data();
  }
  return FoldToMxfp4(first.fp8(), data.data(), scale.data()) ? stored.format : ExpertFormat::kMxfp4;
}

const char* ExpertFormatName(ExpertFormat format) {
  switch (format) {
    case ExpertFormat::kMxfp4:
      return "fp4";
    case ExpertFormat::kNvfp4:
      return "nvfp4";
    case ExpertFormat::kFp8:
      return "fp8";
    case ExpertFormat::kBlocks:
      return "blocks";
  }
  return "unknown";
}

std::optional<int64_t> ToE8M0(absl::Span<const float> f32, uint8_t* scale) {
  for (size_t i = 0; i < f32.size(); ++i) {
    const int byte = E8M0ByteOf(f32[i]);
    if (byte < 0) return static_cast<int64_t>(i);
    scale[i] = static_cast<uint8_t>(byte);
  }
  return std::nullopt;
}

std::optional<int64_t> FoldToMxfp4(const Nvfp4Weight& weight, uint8_t* scale) {
  std::array<int, 256> byte_of{};
  for (int code = 0; code < 256; ++code) {
    byte_of[static_cast<size_t>(code)] =
        E8M0ByteOf(double{E4M3ToFloat(static_cast<uint8_t>(code))} * double{weight.tensor_scale});
  }
  for (int64_t run = 0; run < weight.n * weight.k / kFp4Run; ++run) {
    const uint8_t first = weight.scale[2 * run], second = weight.scale[2 * run + 1];
    if (first != second || byte_of[first] < 0) return run;
    scale[run] = static_cast<uint8_t>(byte_of[first]);
  }
  return std::nullopt;
}

std::optional<int64_t> FoldToMxfp4(const Fp8Weight& weight, uint8_t* data, uint8_t* scale) {
  const int64_t runs = weight.k / kFp4Run, blocks = CeilDiv(weight.k, kFp8Block);
  for (int64_t run = 0; run < weight.n * runs; ++run) {
    const int64_t row = run / runs, column = run % runs * kFp4Run;
    const uint8_t* codes = weight.data + run * kFp4Run;
    const std::optional<int> exponent = CommonExponent(codes);
    if (!exponent) return run;
    const int byte = weight.scale[row / kFp8Block * blocks + column / kFp8Block] + *exponent;
    if (byte < 0 || byte > 254) return run;
    scale[run] = static_cast<uint8_t>(byte);
    for (int64_t i = 0; i < kFp4Run; i += 2) {
      const auto nibble = [&](uint8_t code) {
        const OddPower& number = kOddPowers[code & 127];
        return E2M1CodeOf({number.odd, number.exponent - *exponent}) | (code >> 7 << 3);
      };
      *data++ = static_cast<uint8_t>(nibble(codes[i]) | nibble(codes[i + 1]) << 4);
    }
  }
  return std::nullopt;
}

}  // namespace dsv4
