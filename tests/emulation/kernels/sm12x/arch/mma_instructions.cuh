// SPDX-License-Identifier: Apache-2.0
// Stands for kernels/sm12x/arch/mma_instructions.cuh.
#pragma once

#include "kernels/sm12x/arch/numbers.cuh"
#include "kernels/sm12x/arch/target.cuh"
#include "tests/emulation/matrix_products.h"

namespace dsv4::sm12x {

inline uint32_t F16x2OfUpperE4M3x2(uint32_t codes) {
  return F16x2OfE4M3x2(static_cast<uint16_t>(codes >> 16));
}

inline void RunMma(const char* what, float (&d)[4], emulation::MmaGive give,
                   emulation::MmaType type, int a_scale_byte = 0) {
  std::copy_n(d, 4, give.d);
  const auto got = emulation::Together<emulation::MmaGet>(
      0xffffffffu, what, give,
      [type, a_scale_byte](const emulation::MmaGive* given, emulation::MmaGet* get) {
        emulation::MultiplyTiles(type, a_scale_byte, given, get);
      });
  std::copy_n(got.d, 4, d);
}

inline void MmaBf16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                    uint32_t b1) {
  RunMma("mma bf16", d, {.a = {a0, a1, a2, a3}, .b = {b0, b1}}, emulation::MmaType::kBf16);
}
inline void MmaF16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                   uint32_t b1) {
  RunMma("mma f16", d, {.a = {a0, a1, a2, a3}, .b = {b0, b1}}, emulation::MmaType::kF16);
}

inline void MmaInt8K32(int32_t (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                       int32_t c) {
  float products[4] = {};
  RunMma("mma int8", products, {.a = {a[0], a[1], a[2], a[3]}, .b = {b0, b1}},
         emulation::MmaType::kInt8);
  for (int i = 0; i < 4; ++i) d[i] = static_cast<int32_t>(products[i]) + c;
}
inline void MmaInt8K16(int32_t (&d)[4], uint32_t a0, uint32_t a1, uint32_t b, int32_t c) {
  float products[4] = {};
  RunMma("mma int8 k16", products, {.a = {a0, a1}, .b = {b}}, emulation::MmaType::kInt8);
  for (int i = 0; i < 4; ++i) d[i] = static_cast<int32_t>(products[i]) + c;
}

#if DSV4_BLOCK_SCALED_MMA
inline void MmaScaledE4M3(float (&d)[4], uint4 a, uint32_t b0, uint32_t b1, uint32_t a_scale,
                          uint32_t b_scale) {
  RunMma("mma e4m3", d,
         {.a = {a.x, a.y, a.z, a.w}, .b = {b0, b1}, .a_scale = a_scale, .b_scale = b_scale},
         emulation::MmaType::kE4M3);
}
template <int kByte>
void MmaScaledE2M1(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                   uint32_t a_scale, uint32_t b_scale) {
  RunMma("mma e2m1", d,
         {.a = {a[0], a[1], a[2], a[3]}, .b = {b0, b1}, .a_scale = a_scale, .b_scale = b_scale},
         emulation::MmaType::kE2M1, kByte);
}
#endif

}  // namespace dsv4::sm12x
