// SPDX-License-Identifier: Apache-2.0
// Named barriers, and opaque values that limit how many registers the compiler uses: instructions
// of every target that this backend is built for.
#pragma once

#include <cstdint>

#include "kernels/sm12x/arch/target.cuh"

namespace dsv4::sm12x {

// Waits until `threads` threads of the block have reached barrier `id`, 1 to 15.
__device__ __forceinline__ void WaitAtBarrier(int id, int threads) {
  DSV4_PTX_VOLATILE("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Returns threadIdx.x through an opaque asm that depends on the loop counter `count` (below 2^30),
// so that the compiler does not hoist values derived from it and raise register pressure.
__device__ __forceinline__ int FreshThread(int count) {
  int thread;
  DSV4_PTX_VOLATILE("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread + (count >> 30);
}

// Hides the value of *v from the optimizer; the value does not change.
__device__ __forceinline__ void Forget(uint4* v) {
  DSV4_PTX_VOLATILE("" : "+r"(v->x), "+r"(v->y), "+r"(v->z), "+r"(v->w));
}

}  // namespace dsv4::sm12x
