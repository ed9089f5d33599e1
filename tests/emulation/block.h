// SPDX-License-Identifier: Apache-2.0
// Runs a kernel's blocks on the CPU, one after the other but for those that wait for others, the
// threads of each as fibers of one thread of the host that take turns at barriers and at what the
// lanes of a warp do together. Which block, warp and lane is next is drawn by lot, the same in
// every run, so a result that depends on their order is wrong. Two other errors give wrong results,
// too: reads of shared memory that was not written (it is filled with NaNs), and reads of copies
// that were not waited for (they are made no sooner). What would hang a GPU (lanes that wait for
// others that ended, or at different instructions) ends the program with a message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>

namespace dsv4::emulation {

struct Index3 {
  unsigned x = 0, y = 0, z = 0;
};

// Calls `thread` once for each thread of each block.
void RunGrid(Index3 blocks, unsigned threads, size_t shared_bytes,
             const std::function<void()>& thread);

// The rest is for the code of kernels.

// The thread waits for what other blocks give: others run first. Blocks that wait have no static
// shared memory of their own. If all blocks wait and none gives anything, the program ends.
void WaitForOtherBlocks();
void GiveToOtherBlocks(uint32_t* to, uint32_t value);

std::byte* DynamicSharedMemory();

// Waits for all threads of the block that have not ended; the sum of their `value`s.
int SyncBlock(int value = 0);
// Waits for `threads` threads at barrier `id`, 1 to 15.
void SyncSome(int id, int threads);

// Copies of 16 bytes to shared memory that are not made before somebody waits for them; until then
// the place has NaNs.
void CopyLater(void* to, const void* from, int bytes);
void CommitCopies();
void WaitForCopies(int pending);

// An mbarrier, 8 bytes of shared memory: each of its phases 0, 1, .. ends when `count` threads have
// arrived.
void InitMbarrier(void* at, uint32_t count);
void InvalidateMbarrier(void* at);
void Arrive(void* at);
// Arrives when this thread's copies are made, which is when somebody waits here.
void ArriveAfterCopies(void* at);
// Waits for the phase under way or the one before it, whichever has this parity.
void WaitForPhase(void* at, uint32_t parity);

// Where the lanes of the running thread's warp leave what they give each other.
constexpr size_t kExchangeBytes = 64;
struct Exchange {
  unsigned lane;
  std::byte (*given)[kExchangeBytes], (*got)[kExchangeBytes];
};
Exchange ExchangeOfWarp();
// The lanes of `mask` come together to do `what`. True for the last of them, at once: it does it
// for all and calls Part. False for the others, when it has.
bool Meet(uint32_t mask, const char* what);
void Part(uint32_t mask);

// What the running lane gets of what all of `mask` give: compute(given, got), with arrays of 32 of
// which those of `mask` count.
template <class Get, class Give, class Compute>
Get Together(uint32_t mask, const char* what, const Give& give, Compute compute) {
  static_assert(std::is_trivially_copyable_v<Give> && std::is_trivially_copyable_v<Get>);
  static_assert(sizeof(Give) <= kExchangeBytes && sizeof(Get) <= kExchangeBytes);
  const Exchange exchange = ExchangeOfWarp();
  std::memcpy(exchange.given[exchange.lane], &give, sizeof give);
  if (Meet(mask, what)) {
    Give given[32] = {};
    Get got[32] = {};
    for (int lane = 0; lane < 32; ++lane) {
      if ((mask >> lane & 1) != 0) std::memcpy(&given[lane], exchange.given[lane], sizeof(Give));
    }
    compute(given, got);
    for (int lane = 0; lane < 32; ++lane) {
      if ((mask >> lane & 1) != 0) std::memcpy(exchange.got[lane], &got[lane], sizeof(Get));
    }
    Part(mask);
  }
  Get get;
  std::memcpy(&get, exchange.got[exchange.lane], sizeof get);
  return get;
}

}  // namespace dsv4::emulation

// Of the running thread, under CUDA's names.
extern dsv4::emulation::Index3 threadIdx, blockIdx, blockDim, gridDim;
