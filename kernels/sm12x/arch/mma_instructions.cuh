// SPDX-License-Identifier: Apache-2.0
// mma.sync, one instruction a function. All lanes of a warp call it. Fragments are those of the PTX
// ISA (see also packed_layout.h).
#pragma once

#include <cstdint>

#include "kernels/sm12x/arch/target.cuh"

namespace dsv4::sm12x {

// d += a b, bf16, K = 16.
__device__ __forceinline__ void MmaBf16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                        uint32_t a3, uint32_t b0, uint32_t b1) {
  DSV4_PTX(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// d += a b, f16, K = 16.
__device__ __forceinline__ void MmaF16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                       uint32_t a3, uint32_t b0, uint32_t b1) {
  DSV4_PTX(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// d = a b + c, int8, K = 32 and K = 16; c in all elements.
__device__ __forceinline__ void MmaInt8K32(int32_t (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                           uint32_t b1, int32_t c) {
  DSV4_PTX(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%10, %10, %10, %10};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(c));
}
__device__ __forceinline__ void MmaInt8K16(int32_t (&d)[4], uint32_t a0, uint32_t a1, uint32_t b,
                                           int32_t c) {
  DSV4_PTX(
      "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
      "{%7, %7, %7, %7};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a0), "r"(a1), "r"(b), "r"(c));
}

// Converts the upper two of four e4m3 codes to f16x2, exactly.
__device__ __forceinline__ uint32_t F16x2OfUpperE4M3x2(uint32_t codes) {
  uint32_t out;
  DSV4_PTX(
      "{\n\t.reg .b16 low, high;\n\tmov.b32 {low, high}, %1;\n\t"
      "cvt.rn.f16x2.e4m3x2 %0, high;\n\t}"
      : "=r"(out)
      : "r"(codes));
  return out;
}

#if DSV4_BLOCK_SCALED_MMA
// d += a b, e4m3 by e4m3, K = 32. ue8m0 scales are in the low byte: lane 4 g holds the scales of
// row g and of column g, lane 4 g + 1 that of row g + 8.
__device__ __forceinline__ void MmaScaledE4M3(float (&d)[4], uint4 a, uint32_t b0, uint32_t b1,
                                              uint32_t a_scale, uint32_t b_scale) {
  DSV4_PTX(
      "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3."
      "f32."
      "ue8m0 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {0, 0}, "
      "{%11}, {0, 0};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1), "r"(a_scale), "r"(b_scale));
}

// d += a b, e2m1 (a code in bits 5 .. 2 of a byte) by e4m3. The scales of `a` are in byte kByte.
template <int kByte>
__device__ __forceinline__ void MmaScaledE2M1(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                              uint32_t b1, uint32_t a_scale, uint32_t b_scale) {
  DSV4_PTX(
      "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e2m1.e4m3."
      "f32."
      "ue8m0 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%12, 0}, "
      "{%11}, {0, 0};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(a_scale), "r"(b_scale),
        "n"(kByte));
}
#endif

}  // namespace dsv4::sm12x
