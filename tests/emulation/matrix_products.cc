// SPDX-License-Identifier: Apache-2.0
#include "tests/emulation/matrix_products.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <type_traits>

#include "lib/tensor/quant_format.h"
#include "tests/emulation/kernels/sm12x/arch/numbers.cuh"

namespace dsv4::emulation {
namespace {

constexpr int kMostK = 32;

// sums = a b; each sum in the order of k.
#if defined(__x86_64__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
void AddProducts(const double (*a)[kMostK], const double (*b)[8], int width, double (*sums)[8]) {
  for (int row = 0; row < 16; ++row) {
    double sum[8] = {};
    for (int k = 0; k < width; ++k) {
      for (int n = 0; n < 8; ++n) sum[n] += a[row][k] * b[k][n];
    }
    std::copy_n(sum, 8, sums[row]);
  }
}

const std::array<float, 256> kE4M3Values = [] {
  std::array<float, 256> values;
  for (size_t code = 0; code < values.size(); ++code) {
    values[code] = E4M3ToFloat(static_cast<uint8_t>(code));
  }
  return values;
}();

MmaModel model;

// The value at a place of a word that holds kPlaces. kLeast: the exponent of subnormal numbers.
struct F16Element {
  static constexpr int kLeast = -14;
  float operator()(uint32_t word, int place) const {
    return sm12x::FloatOfF16(word >> 16 * place & 0xffff);
  }
};
struct Bf16Element {
  static constexpr int kLeast = -126;
  float operator()(uint32_t word, int place) const {
    return std::bit_cast<float>(word >> 16 * place << 16);
  }
};
struct E4M3Element {
  static constexpr int kLeast = -6;
  float operator()(uint32_t word, int place) const { return kE4M3Values[word >> 8 * place & 0xff]; }
};
struct E2M1Element {
  static constexpr int kLeast = 0;
  float operator()(uint32_t word, int place) const {
    constexpr float kMagnitudes[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    const int low = model.fault == MmaFault::kLowE2M1 ? 0 : 2;
    const uint32_t code = word >> (8 * place + low) & 15;
    return (code & 8) != 0 ? -kMagnitudes[code & 7] : kMagnitudes[code & 7];
  }
};

struct Int8Element {
  static constexpr int kLeast = 0;
  float operator()(uint32_t word, int place) const {
    return static_cast<int8_t>(word >> 8 * place & 0xff);
  }
};

double UE8M0(uint32_t word, int byte) {
  const uint64_t code = word >> 8 * byte & 0xff;
  return code == 255 ? NAN : std::bit_cast<double>((code + 1023 - 127) << 52);
}

// The operands of a tile; scales are 1 without scales.
struct Tiles {
  double a[16][kMostK], b[kMostK][8];
  double scale_a[16], scale_b[8];
};

template <int kPlaces, class ElementA, class ElementB>
void ReadTiles(bool scaled, int a_scale_byte, const MmaGive* give, Tiles* tiles) {
  constexpr int kHalf = 4 * kPlaces, kK = 2 * kHalf;
  static_assert(kK <= kMostK);
  const MmaFault fault = scaled ? model.fault : MmaFault::kNone;
  const int low = fault == MmaFault::kSwappedRegisters ? 2 : 1, high = 3 - low;
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int place = 0; place < kPlaces; ++place) {
      const int k = kPlaces * t + place;
      tiles->a[g][k] = ElementA()(give[lane].a[0], place);
      tiles->a[g + 8][k] = ElementA()(give[lane].a[low], place);
      tiles->a[g][k + kHalf] = ElementA()(give[lane].a[high], place);
      tiles->a[g + 8][k + kHalf] = ElementA()(give[lane].a[3], place);
      tiles->b[k][g] = ElementB()(give[lane].b[0], place);
      tiles->b[k + kHalf][g] = ElementB()(give[lane].b[1], place);
    }
  }
  const int byte = fault == MmaFault::kIgnoredScaleByte ? 0 : a_scale_byte;
  const int swapped = fault == MmaFault::kSwappedRowScales ? 8 : 0;
  const int neighbour = fault == MmaFault::kNeighboursColumnScales ? 1 : 0;
  for (int g = 0; g < 8; ++g) {
    tiles->scale_a[g ^ swapped] = scaled ? UE8M0(give[4 * g].a_scale, byte) : 1;
    tiles->scale_a[(g + 8) ^ swapped] = scaled ? UE8M0(give[4 * g + 1].a_scale, byte) : 1;
    tiles->scale_b[g ^ neighbour] = scaled ? UE8M0(give[4 * g].b_scale, 0) : 1;
  }
}

// The exponent of a number's significand: that of subnormal ones is `least`.
int ExponentOf(double value, int least) {
  constexpr int kOfZero = -126;
  return value == 0 ? kOfZero : std::max(std::ilogb(value), least);
}

// `value` in units of 2^unit, cut.
int64_t Cut(double value, int unit) {
  return static_cast<int64_t>(std::trunc(std::ldexp(value, -unit)));
}

float CutToFloat(double value) {
  const auto rounded = static_cast<float>(value);
  return std::fabs(double{rounded}) > std::fabs(value) ? std::nextafterf(rounded, 0.0f) : rounded;
}

// The sum of d and the products of row and column, all in units of the largest one's power of 2.
template <int kK, int kLeastA, int kLeastB>
float SumCut(const Tiles& tiles, int row, int n, float d, int bits) {
  constexpr int kLeastOfFloat = -126;
  constexpr uint32_t kNan = 0x7fffffff;
  const double scale = tiles.scale_a[row] * tiles.scale_b[n];
  double products[kK];
  int largest = ExponentOf(d, kLeastOfFloat);
  bool finite = std::isfinite(d) && std::isfinite(scale);
  for (int k = 0; k < kK && finite; ++k) {
    const double a = tiles.a[row][k], b = tiles.b[k][n];
    products[k] = a * b * scale;
    finite = std::isfinite(products[k]);
    if (!finite) break;
    largest =
        std::max(largest, ExponentOf(a, kLeastA) + ExponentOf(b, kLeastB) + std::ilogb(scale));
  }
  if (!finite) return std::bit_cast<float>(kNan);
  const int unit = largest - bits;
  int64_t sum = Cut(d, unit);
  for (const double product : products) sum += Cut(product, unit);
  return CutToFloat(std::ldexp(static_cast<double>(sum), unit));
}

template <int kPlaces, class ElementA, class ElementB>
void Multiply(bool scaled, int a_scale_byte, const MmaGive* give, MmaGet* get) {
  constexpr int kK = 8 * kPlaces;
  Tiles tiles;
  ReadTiles<kPlaces, ElementA, ElementB>(scaled, a_scale_byte, give, &tiles);
  const int bits = std::is_same_v<ElementA, Int8Element> ? 0  // integers
                   : scaled                              ? model.scaled_fraction_bits
                                                         : model.fraction_bits;
  double sums[16][8];
  if (bits == 0) AddProducts(tiles.a, tiles.b, kK, sums);
  for (int row = 0; row < 16; ++row) {
    for (int n = 0; n < 8; ++n) {
      const int lane = row % 8 * 4 + n / 2, i = row / 8 * 2 + n % 2;
      const float d = give[lane].d[i];
      get[lane].d[i] =
          bits == 0
              ? static_cast<float>(sums[row][n] * tiles.scale_a[row] * tiles.scale_b[n] + double{d})
              : SumCut<kK, ElementA::kLeast, ElementB::kLeast>(tiles, row, n, d, bits);
    }
  }
}

}  // namespace

void SetMmaModel(const MmaModel& given) { model = given; }

void MultiplyTiles(MmaType type, int a_scale_byte, const MmaGive* give, MmaGet* get) {
  switch (type) {
    case MmaType::kBf16:
      return Multiply<2, Bf16Element, Bf16Element>(false, 0, give, get);
    case MmaType::kF16:
      return Multiply<2, F16Element, F16Element>(false, 0, give, get);
    case MmaType::kE4M3:
      return Multiply<4, E4M3Element, E4M3Element>(true, a_scale_byte, give, get);
    case MmaType::kE2M1:
      return Multiply<4, E2M1Element, E4M3Element>(true, a_scale_byte, give, get);
    case MmaType::kInt8:
      return Multiply<4, Int8Element, Int8Element>(false, 0, give, get);
  }
}

}  // namespace dsv4::emulation
