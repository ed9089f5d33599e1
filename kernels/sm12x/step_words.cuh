// SPDX-License-Identifier: Apache-2.0
// Words that the blocks of a kernel hand to each other, in memory that launches of a stream share
// (LaunchContext::marked). A word is there or empty, which itself says: a reader repeats its load
// until it is there, so that neither a barrier of the grid nor a counter stands between blocks.
//
// There are two sets of words. A launch writes one of them and empties the other, which the launch
// before it wrote and nobody reads any more. Both are empty at first.
//
// All blocks must be resident at once: a grid has at most one block a multiprocessor. They come to
// be, because every other kernel ends by itself; of kernels like this one only one runs at a time
// (Device::TakeWaitingBlocks).
#pragma once

#include <cstdint>

#include "kernels/op/op.h"
#include "kernels/sm12x/arch/signals.cuh"
#include "kernels/sm12x/overlapped_launch.cuh"

namespace dsv4::sm12x {

struct WordsHeader {
  uint32_t launches;  // so far
  uint32_t unused[15];
};
inline constexpr int64_t kWordsBytes = (kMarkedBytes - int64_t{sizeof(WordsHeader)}) / 2;

// An empty word is 0, and a word has its value's complement: no value is all ones, because those
// are two bf16 NaNs, or an f32 one, that no arithmetic gives; should one come, it becomes another.
__device__ __forceinline__ void PublishWord(uint32_t* to, uint32_t value) {
  StoreWordRelaxed(to, value == ~0u ? ~0x7fff7fffu : ~value);
}

// Sets found[i] to the four values from at(i) on, when all are there. All lanes of a warp call it.
template <int kCount, class At>
__device__ __forceinline__ void AwaitWords(uint4 (&found)[kCount], At&& at) {
  while (true) {
    bool empty = false;
#pragma unroll
    for (int i = 0; i < kCount; ++i) found[i] = LoadWordsRelaxed(at(i));
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      empty |= found[i].x == 0 || found[i].y == 0 || found[i].z == 0 || found[i].w == 0;
    }
    if (!__any_sync(0xffffffffu, empty)) break;
    PauseForOtherBlocks();
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    found[i] = make_uint4(~found[i].x, ~found[i].y, ~found[i].z, ~found[i].w);
  }
}
// One value for each lane.
__device__ __forceinline__ uint32_t AwaitWord(const uint32_t* from) {
  while (true) {
    const uint32_t found = LoadWordRelaxed(from);
    if (!__any_sync(0xffffffffu, found == 0)) return ~found;
    PauseForOtherBlocks();
  }
}

// A launch's words. Every thread of its blocks calls the members.
struct LaunchWords {
  std::byte* marked;
  uint32_t launch;

  // First. Waits for predecessors.
  __device__ __forceinline__ void Begin(std::byte* memory) {
    BeginAfterPredecessors();
    marked = memory;
    launch = Header()->launches;
    auto* const other = reinterpret_cast<uint4*>(Set(launch + 1));
    for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < kWordsBytes / 16;
         i += int64_t{gridDim.x} * blockDim.x) {
      other[i] = make_uint4(0, 0, 0, 0);
    }
  }
  __device__ __forceinline__ WordsHeader* Header() const {
    return reinterpret_cast<WordsHeader*>(marked);
  }
  __device__ __forceinline__ uint32_t* Set(uint32_t of_launch) const {
    return reinterpret_cast<uint32_t*>(marked + sizeof(WordsHeader) + of_launch % 2 * kWordsBytes);
  }
  // The words from byte `offset` on.
  __device__ __forceinline__ uint32_t* At(int64_t offset) const { return Set(launch) + offset / 4; }
  // Last. Before, block 0 has read words of all blocks, so all of them have begun.
  __device__ __forceinline__ void End() const {
    if (blockIdx.x == 0 && threadIdx.x == 0) Header()->launches = launch + 1;
  }
};

}  // namespace dsv4::sm12x
