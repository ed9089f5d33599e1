// SPDX-License-Identifier: Apache-2.0
#include "tests/emulation/matrix_products.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

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

// The value at a place of a word that holds kPlaces.
struct F16Element {
  float operator()(uint32_t word, int place) const {
    return sm12x::FloatOfF16(word >> 16 * place & 0xffff);
  }
};
struct Bf16Element {
  float operator()(uint32_t word, int place) const {
    return std::bit_cast<float>(word >> 16 * place << 16);
  }
};
struct E4M3Element {
  float operator()(uint32_t word, int place) const { return kE4M3Values[word >> 8 * place & 0xff]; }
};
struct E2M1Element {
  float operator()(uint32_t word, int place) const {
    constexpr float kMagnitudes[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    const uint32_t code = word >> (8 * place + 2) & 15;
    return (code & 8) != 0 ? -kMagnitudes[code & 7] : kMagnitudes[code & 7];
  }
};

struct Int8Element {
  float operator()(uint32_t word, int place) const {
    return static_cast<int8_t>(word >> 8 * place & 0xff);
  }
};

double UE8M0(uint32_t word, int byte) {
  const uint64_t code = word >> 8 * byte & 0xff;
  return code == 255 ? NAN : std::bit_cast<double>((code + 1023 - 127) << 52);
}

template <int kPlaces, class ElementA, class ElementB>
void Multiply(bool scaled, int a_scale_byte, const MmaGive* give, MmaGet* get) {
  constexpr int kHalf = 4 * kPlaces, kK = 2 * kHalf;
  static_assert(kK <= kMostK);
  double a[16][kMostK], b[kMostK][8];
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int place = 0; place < kPlaces; ++place) {
      const int k = kPlaces * t + place;
      a[g][k] = ElementA()(give[lane].a[0], place);
      a[g + 8][k] = ElementA()(give[lane].a[1], place);
      a[g][k + kHalf] = ElementA()(give[lane].a[2], place);
      a[g + 8][k + kHalf] = ElementA()(give[lane].a[3], place);
      b[k][g] = ElementB()(give[lane].b[0], place);
      b[k + kHalf][g] = ElementB()(give[lane].b[1], place);
    }
  }
  double sums[16][8];
  AddProducts(a, b, kK, sums);
  double scale_a[16], scale_b[8];
  for (int g = 0; g < 8; ++g) {
    scale_a[g] = scaled ? UE8M0(give[4 * g].a_scale, a_scale_byte) : 1;
    scale_a[g + 8] = scaled ? UE8M0(give[4 * g + 1].a_scale, a_scale_byte) : 1;
    scale_b[g] = scaled ? UE8M0(give[4 * g].b_scale, 0) : 1;
  }
  for (int row = 0; row < 16; ++row) {
    for (int n = 0; n < 8; ++n) {
      const int lane = row % 8 * 4 + n / 2, i = row / 8 * 2 + n % 2;
      get[lane].d[i] =
          static_cast<float>(sums[row][n] * scale_a[row] * scale_b[n] + double{give[lane].d[i]});
    }
  }
}

}  // namespace

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
