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

// Two words of a packet, each stored and loaded whole; in no order.
__device__ __forceinline__ void StorePacketSystem(uint64_t* to, uint64_t first, uint64_t second) {
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(first), "l"(second)
               : "memory");
}
__device__ __forceinline__ void LoadPacketSystem(const uint64_t* from, uint64_t& first,
                                                 uint64_t& second) {
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(first), "=l"(second)
               : "l"(from)
               : "memory");
}

__device__ __forceinline__ int64_t NowNs() {
  int64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

}  // namespace dsv4::sm12x
