// SPDX-License-Identifier: Apache-2.0
// Stands for kernels/sm12x/arch/signals.cuh.
#pragma once

#include <chrono>
#include <cstdint>

namespace dsv4::sm12x {

inline uint32_t LoadAcquireSystem(const uint32_t* from) {
  return __atomic_load_n(from, __ATOMIC_ACQUIRE);
}
inline void StoreReleaseSystem(uint32_t* to, uint32_t value) {
  __atomic_store_n(to, value, __ATOMIC_RELEASE);
}
inline void StorePacketSystem(uint64_t* to, uint64_t first, uint64_t second) {
  __atomic_store_n(to, first, __ATOMIC_RELAXED);
  __atomic_store_n(to + 1, second, __ATOMIC_RELAXED);
}
inline void LoadPacketSystem(const uint64_t* from, uint64_t& first, uint64_t& second) {
  first = __atomic_load_n(from, __ATOMIC_RELAXED);
  second = __atomic_load_n(from + 1, __ATOMIC_RELAXED);
}
inline uint4 LoadWordsRelaxed(const uint32_t* from) { return {from[0], from[1], from[2], from[3]}; }
inline uint32_t LoadWordRelaxed(const uint32_t* from) { return *from; }
inline void StoreWordRelaxed(uint32_t* to, uint32_t value) {
  emulation::GiveToOtherBlocks(to, value);
}
inline void PauseForOtherBlocks() { emulation::WaitForOtherBlocks(); }
inline int64_t NowNs() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

}  // namespace dsv4::sm12x
