// SPDX-License-Identifier: Apache-2.0
// Stands for kernels/sm12x/arch/memory.cuh. Nothing is prefetched, but what is asked for is looked
// at: it has to be there.
#pragma once

#include "tests/emulation/device.h"

namespace dsv4::sm12x {

template <class T>
T* DynamicShared() {
  return reinterpret_cast<T*>(emulation::DynamicSharedMemory());
}
template <class T>
T* AlignedDynamicShared() {
  return DynamicShared<T>();
}

inline uint4 LoadOnce(const void* from) { return *static_cast<const uint4*>(from); }

inline uint4 LoadWithLine(const void* from) { return *static_cast<const uint4*>(from); }
inline void LoadIf(bool wanted, const void* from, uint4* to) {
  if (wanted) *to = *static_cast<const uint4*>(from);
}

inline void PrefetchLine(const void* at) { (void)*static_cast<const volatile char*>(at); }
inline void PrefetchLines(const void* from, int64_t bytes, int threads) {
  for (int64_t i = threadIdx.x * 128; i < bytes; i += threads * 128) {
    PrefetchLine(static_cast<const char*>(from) + i);
  }
}
inline void PrefetchBulk(const void* from, uint32_t bytes) {
  PrefetchLine(from);
  PrefetchLine(static_cast<const char*>(from) + bytes - 1);
}

inline void CopyAsync16(void* to_shared, const void* from) {
  emulation::CopyLater(to_shared, from, 16);
}
inline void CopyAsync4(void* to_shared, const void* from) {
  emulation::CopyLater(to_shared, from, 4);
}
inline void CommitCopies() { emulation::CommitCopies(); }
template <int kPending>
void WaitForCopies() {
  emulation::WaitForCopies(kPending);
}

inline void InitMbarrier(uint64_t* barrier, uint32_t count) {
  emulation::InitMbarrier(barrier, count);
}
inline void InvalidateMbarrier(uint64_t* barrier) { emulation::InvalidateMbarrier(barrier); }
inline void Arrive(uint64_t* barrier) { emulation::Arrive(barrier); }
inline void ArriveAfterCopies(uint64_t* barrier) { emulation::ArriveAfterCopies(barrier); }
inline void WaitForPhase(uint64_t* barrier, uint32_t parity) {
  emulation::WaitForPhase(barrier, parity);
}

}  // namespace dsv4::sm12x
