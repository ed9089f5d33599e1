// SPDX-License-Identifier: Apache-2.0
// Dynamic shared memory, streaming loads, prefetches, asynchronous copies to shared memory, and
// mbarriers.
#pragma once

#include <cstdint>

#include "kernels/sm12x/arch/target.cuh"

namespace dsv4::sm12x {

// The block's dynamic shared memory, aligned to 16 bytes; and aligned to 128.
template <class T>
__device__ __forceinline__ T* DynamicShared() {
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  return reinterpret_cast<T*>(dynamic_shared);
}
template <class T>
__device__ __forceinline__ T* AlignedDynamicShared() {
  extern __shared__ __align__(128) unsigned char aligned_dynamic_shared[];
  return reinterpret_cast<T*>(aligned_dynamic_shared);
}

// Loads 16 bytes that are not read again soon: bypasses L1, evicted first from L2.
__device__ __forceinline__ uint4 LoadOnce(const void* from) {
  uint64_t policy;
  DSV4_PTX("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  uint4 v;
  DSV4_PTX_VOLATILE("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                    : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                    : "l"(from), "l"(policy));
  return v;
}

// Loads 16 bytes, and their line of 128 bytes to L2.
__device__ __forceinline__ uint4 LoadWithLine(const void* from) {
  uint4 v;
  DSV4_PTX_VOLATILE("ld.global.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                    : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                    : "l"(from)
                    : "memory");
  return v;
}

// Sets *to to 16 bytes if `wanted`. Of several, all loads begin before one is waited for.
__device__ __forceinline__ void LoadIf(bool wanted, const void* from, uint4* to) {
  DSV4_PTX_VOLATILE(
      "{\n\t.reg .pred wanted;\n\tsetp.ne.u32 wanted, %5, 0;\n\t"
      "@wanted ld.global.v4.u32 {%0, %1, %2, %3}, [%4];\n\t}"
      : "+r"(to->x), "+r"(to->y), "+r"(to->z), "+r"(to->w)
      : "l"(from), "r"(static_cast<uint32_t>(wanted))
      : "memory");
}

// Prefetches `bytes` from `from` on to L2, line by line, shared by `threads` threads.
__device__ __forceinline__ void PrefetchLines(const void* from, int64_t bytes, int threads) {
  constexpr int kLine = 128;
  for (int64_t i = threadIdx.x * kLine; i < bytes; i += threads * kLine) {
    DSV4_PTX_VOLATILE("prefetch.global.L2 [%0];" ::"l"(static_cast<const char*>(from) + i));
  }
}

// Prefetches the line of `at` to L2.
__device__ __forceinline__ void PrefetchLine(const void* at) {
  DSV4_PTX_VOLATILE("prefetch.global.L2 [%0];" ::"l"(at));
}

// Prefetches `bytes`, a positive multiple of 16, to L2. `from` is aligned to 16 bytes.
__device__ __forceinline__ void PrefetchBulk(const void* from, uint32_t bytes) {
  DSV4_PTX_VOLATILE("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes)
                    : "memory");
}

// Copies 16 bytes of global memory to shared memory asynchronously, bypassing L1.
__device__ __forceinline__ void CopyAsync16(void* to_shared, const void* from) {
  DSV4_PTX_VOLATILE("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                        static_cast<uint32_t>(__cvta_generic_to_shared(to_shared))),
                    "l"(from)
                    : "memory");
}
// Copies 4 bytes asynchronously, through L1.
__device__ __forceinline__ void CopyAsync4(void* to_shared, const void* from) {
  DSV4_PTX_VOLATILE("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(
                        static_cast<uint32_t>(__cvta_generic_to_shared(to_shared))),
                    "l"(from)
                    : "memory");
}
__device__ __forceinline__ void CommitCopies() {
  DSV4_PTX_VOLATILE("cp.async.commit_group;" ::: "memory");
}
// Waits until at most the last `kPending` groups of this thread are pending.
template <int kPending>
__device__ __forceinline__ void WaitForCopies() {
  DSV4_PTX_VOLATILE("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// An mbarrier is a word of shared memory with phases 0, 1, 2, .. A phase ends when `count` threads
// have arrived. A thread's writes before it arrives are visible to threads that have waited for the
// phase.
__device__ __forceinline__ uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}
__device__ __forceinline__ void InitMbarrier(uint64_t* barrier, uint32_t count) {
  DSV4_PTX_VOLATILE("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(SharedAddress(barrier)),
                    "r"(count)
                    : "memory");
}
// Ends the mbarrier; its word may then be used for something else.
__device__ __forceinline__ void InvalidateMbarrier(uint64_t* barrier) {
  DSV4_PTX_VOLATILE("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(SharedAddress(barrier))
                    : "memory");
}
__device__ __forceinline__ void Arrive(uint64_t* barrier) {
  DSV4_PTX_VOLATILE("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(SharedAddress(barrier))
                    : "memory");
}
// Arrives for this thread when all of its copies so far are complete. Does not wait.
__device__ __forceinline__ void ArriveAfterCopies(uint64_t* barrier) {
  DSV4_PTX_VOLATILE(
      "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(SharedAddress(barrier))
      : "memory");
}
// Waits until the phase with parity `parity` (0 or 1) has ended: the current phase or the one
// before it. The phase before phase 0 counts as ended.
__device__ __forceinline__ void WaitForPhase(uint64_t* barrier, uint32_t parity) {
  DSV4_PTX_VOLATILE(
      "{\n\t.reg .pred ended;\n"
      "WAIT:\n\tmbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n\t"
      "@!ended bra WAIT;\n\t}" ::"r"(SharedAddress(barrier)),
      "r"(parity)
      : "memory");
}

}  // namespace dsv4::sm12x
