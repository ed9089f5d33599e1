// SPDX-License-Identifier: Apache-2.0
// Words by which devices and the host tell each other how far they have come. What a thread wrote
// before a store is seen by whoever loads what it stored, and so is what its block wrote before a
// barrier, and what kernels before its own did.
#pragma once

#include <cstdint>

namespace dsv4::sm12x {

__device__ __forceinline__ uint32_t LoadAcquireSystem(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
__device__ __forceinline__ void StoreReleaseSystem(uint32_t* to, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

__device__ __forceinline__ int64_t NowNs() {
  int64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

}  // namespace dsv4::sm12x
