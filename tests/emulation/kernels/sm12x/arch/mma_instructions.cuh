// SPDX-License-Identifier: Apache-2.0
// Stands for kernels/sm12x/arch/mma_instructions.cuh, from the fragments that the PTX ISA shows for
// each shape. Sums are exact before they are rounded once, which is more than any GPU promises.
#pragma once

#include "kernels/sm12x/arch/numbers.cuh"
#include "kernels/sm12x/arch/target.cuh"
#include "lib/tensor/quant_format.h"

namespace dsv4::sm12x {

inline uint32_t F16x2OfUpperE4M3x2(uint32_t codes) {
  return F16x2OfE4M3x2(static_cast<uint16_t>(codes >> 16));
}

struct MmaGive {
  float d[4] = {};
  uint32_t a[4] = {}, b[2] = {};
  uint32_t a_scale = 0, b_scale = 0;
};
struct MmaGet {
  float d[4];
};

// d = a b + d for matrices of m16n8, K numbers a row, from what the lanes give. element_a(word,
// place), element_b(word, place): the value at a place of a word that holds kPlaces; scale_a(word),
// scale_b(word): of a row or column.
template <int kPlaces, class ElementA, class ElementB, class ScaleA, class ScaleB>
struct Mma {
  void operator()(const MmaGive* give, MmaGet* get) const {
    constexpr int kHalf = 4 * kPlaces, kK = 2 * kHalf;
    float a[16][kK], b[kK][8];
    double scale_a[16], scale_b[8];
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
    for (int g = 0; g < 8; ++g) {
      scale_a[g] = ScaleA()(give[4 * g].a_scale);
      scale_a[g + 8] = ScaleA()(give[4 * g + 1].a_scale);
      scale_b[g] = ScaleB()(give[4 * g].b_scale);
    }
    for (int row = 0; row < 16; ++row) {
      double sums[8] = {};
      for (int k = 0; k < kK; ++k) {
        for (int n = 0; n < 8; ++n) sums[n] += double{a[row][k]} * b[k][n];
      }
      for (int n = 0; n < 8; ++n) {
        const int lane = row % 8 * 4 + n / 2, i = row / 8 * 2 + n % 2;
        get[lane].d[i] =
            static_cast<float>(sums[n] * scale_a[row] * scale_b[n] + double{give[lane].d[i]});
      }
    }
  }
};

struct F16Element {
  float operator()(uint32_t word, int place) const {
    return FloatOfF16(word >> 16 * place & 0xffff);
  }
};
struct Bf16Element {
  float operator()(uint32_t word, int place) const {
    return std::bit_cast<float>(word >> 16 * place << 16);
  }
};
struct E4M3Element {
  float operator()(uint32_t word, int place) const {
    return E4M3ToFloat(static_cast<uint8_t>(word >> 8 * place));
  }
};
// The code is in bits 5 .. 2 of its byte.
struct E2M1Element {
  float operator()(uint32_t word, int place) const {
    constexpr float kMagnitudes[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    const uint32_t code = word >> (8 * place + 2) & 15;
    return (code & 8) != 0 ? -kMagnitudes[code & 7] : kMagnitudes[code & 7];
  }
};
struct Unscaled {
  double operator()(uint32_t) const { return 1; }
};
template <int kByte>
struct UE8M0 {
  double operator()(uint32_t word) const {
    const uint64_t code = word >> 8 * kByte & 0xff;
    return code == 255 ? NAN : std::bit_cast<double>((code + 1023 - 127) << 52);
  }
};

template <class Product>
void RunMma(const char* what, float (&d)[4], MmaGive give, Product product) {
  std::copy_n(d, 4, give.d);
  const auto got = emulation::Together<MmaGet>(0xffffffffu, what, give, product);
  std::copy_n(got.d, 4, d);
}

inline void MmaBf16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                    uint32_t b1) {
  RunMma("mma bf16", d, {.a = {a0, a1, a2, a3}, .b = {b0, b1}},
         Mma<2, Bf16Element, Bf16Element, Unscaled, Unscaled>());
}
inline void MmaF16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                   uint32_t b1) {
  RunMma("mma f16", d, {.a = {a0, a1, a2, a3}, .b = {b0, b1}},
         Mma<2, F16Element, F16Element, Unscaled, Unscaled>());
}

#if DSV4_BLOCK_SCALED_MMA
inline void MmaScaledE4M3(float (&d)[4], uint4 a, uint32_t b0, uint32_t b1, uint32_t a_scale,
                          uint32_t b_scale) {
  RunMma("mma e4m3", d,
         {.a = {a.x, a.y, a.z, a.w}, .b = {b0, b1}, .a_scale = a_scale, .b_scale = b_scale},
         Mma<4, E4M3Element, E4M3Element, UE8M0<0>, UE8M0<0>>());
}
template <int kByte>
void MmaScaledE2M1(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                   uint32_t a_scale, uint32_t b_scale) {
  RunMma("mma e2m1", d,
         {.a = {a[0], a[1], a[2], a[3]}, .b = {b0, b1}, .a_scale = a_scale, .b_scale = b_scale},
         Mma<4, E2M1Element, E4M3Element, UE8M0<kByte>, UE8M0<0>>());
}
#endif

}  // namespace dsv4::sm12x
