// SPDX-License-Identifier: Apache-2.0
// Barriers, and what keeps the compiler from keeping more than registers can hold:
// instructions of every target that this backend has.
#pragma once

#include <cstdint>

namespace dsv4::sm12x {

// Waits for the `threads` threads of the block that name barrier `id`, 1 to 15.
__device__ __forceinline__ void WaitAtBarrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// threadIdx.x, as the compiler cannot know it in a loop over `count`, which is below 2^30: what is
// made of it is not made ahead of the loop and kept in registers that the loop wants for itself.
__device__ __forceinline__ int FreshThread(int count) {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread + (count >> 30);
}

// The same value, which the compiler does not know any longer.
__device__ __forceinline__ void Forget(uint4* v) {
  asm volatile("" : "+r"(v->x), "+r"(v->y), "+r"(v->z), "+r"(v->w));
}

}  // namespace dsv4::sm12x
