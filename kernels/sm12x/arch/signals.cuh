// SPDX-License-Identifier: Apache-2.0
// Signals between devices and the host through words of memory, with release stores and acquire
// loads of system scope. Whoever loads a stored value also sees, of the storing thread:
// - its own earlier writes,
// - the writes of its block before a barrier,
// - the writes of earlier kernels.
#pragma once

#include <cstdint>

#include "kernels/sm12x/arch/target.cuh"

namespace dsv4::sm12x {

__device__ __forceinline__ uint32_t LoadAcquireSystem(const uint32_t* from) {
  uint32_t value;
  DSV4_PTX_VOLATILE("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
__device__ __forceinline__ void StoreReleaseSystem(uint32_t* to, uint32_t value) {
  DSV4_PTX_VOLATILE("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

// A packet of two words. Each word is stored and loaded whole; their order is not defined.
__device__ __forceinline__ void StorePacketSystem(uint64_t* to, uint64_t first, uint64_t second) {
  DSV4_PTX_VOLATILE("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(first),
                    "l"(second)
                    : "memory");
}
__device__ __forceinline__ void LoadPacketSystem(const uint64_t* from, uint64_t& first,
                                                 uint64_t& second) {
  DSV4_PTX_VOLATILE("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
                    : "=l"(first), "=l"(second)
                    : "l"(from)
                    : "memory");
}

// Between blocks of a grid, which must all be resident. Each word is stored and loaded whole, and
// nothing orders it to others: it shows itself whether it has come. Who finds that it has not calls
// PauseForOtherBlocks, with all lanes of the warp, and loads again.
__device__ __forceinline__ uint4 LoadWordsRelaxed(const uint32_t* from) {
  uint4 v;
  DSV4_PTX_VOLATILE("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                    : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                    : "l"(from)
                    : "memory");
  return v;
}
__device__ __forceinline__ uint32_t LoadWordRelaxed(const uint32_t* from) {
  uint32_t value;
  DSV4_PTX_VOLATILE("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
__device__ __forceinline__ void StoreWordRelaxed(uint32_t* to, uint32_t value) {
  DSV4_PTX_VOLATILE("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ __forceinline__ void PauseForOtherBlocks() {
  DSV4_PTX_VOLATILE("nanosleep.u32 20;" ::: "memory");
}

__device__ __forceinline__ int64_t NowNs() {
  int64_t now;
  DSV4_PTX_VOLATILE("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

}  // namespace dsv4::sm12x
