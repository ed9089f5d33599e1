// SPDX-License-Identifier: Apache-2.0
// What brings fragments of 16-bit elements out of shared memory, and arithmetic on pairs of them:
// instructions of every target that this backend has. Lane l is g = l / 4, t = l % 4.
#pragma once

#include <cstdint>

namespace dsv4::sm12x {

// Four 8 x 8 matrices of 16-bit elements from shared memory: lane l names row l % 8 of matrix
// l / 8, 16 bytes. Lane l gets the elements 2t and 2t + 1 of row g of each matrix.
__device__ __forceinline__ void LoadMatrices(uint32_t (&out)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address)
               : "memory");
}

// The same, each matrix transposed: lane l gets the elements g of rows 2t and 2t + 1.
__device__ __forceinline__ void LoadTransposedMatrices(uint32_t (&out)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address)
               : "memory");
}

// threadIdx.x, as the compiler cannot know it in a loop over `count`, which is below 2^30: what is
// made of it is not made ahead of the loop and kept in registers that the loop wants for itself.
__device__ __forceinline__ int FreshThread(int count) {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread + (count >> 30);
}

// The products of two pairs, subnormal numbers included.
__device__ __forceinline__ uint32_t MultiplyBf16x2(uint32_t a, uint32_t b) {
  uint32_t out;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
  return out;
}

// The sums of two pairs.
__device__ __forceinline__ uint32_t AddBf16x2(uint32_t a, uint32_t b) {
  uint32_t out;
  asm("add.rn.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
  return out;
}

// A barrier of the warp that stays one in the machine's code, as the compiler cannot know `all`, the
// mask of all lanes: no load is moved across it, and so no registers are taken for what lies behind.
__device__ __forceinline__ void HoldBackLoads(unsigned all) {
  asm volatile("bar.warp.sync %0;" ::"r"(all) : "memory");
}

// Their differences.
__device__ __forceinline__ uint32_t SubtractBf16x2(uint32_t a, uint32_t b) {
  uint32_t out;
  asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
  return out;
}

// Waits for the `threads` threads of the block that name barrier `id`, 1 to 15.
__device__ __forceinline__ void WaitAtBarrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// The two halves of an f16x2, exactly.
__device__ __forceinline__ float2 FloatsOfF16x2(uint32_t pair) {
  float2 out;
  asm("{\n\t.reg .b16 low, high;\n\tmov.b32 {low, high}, %2;\n\tcvt.f32.f16 %0, low;\n\t"
      "cvt.f32.f16 %1, high;\n\t}"
      : "=f"(out.x), "=f"(out.y)
      : "r"(pair));
  return out;
}

}  // namespace dsv4::sm12x
