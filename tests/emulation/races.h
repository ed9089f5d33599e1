// SPDX-License-Identifier: Apache-2.0
// Finds what the threads of a block do to the same bytes of shared memory with nothing to order it,
// whether or not the order in which they happen to run shows it. Writes of equal bytes are none.
// Kernels are compiled with -fsanitize=thread, which makes each access a call; the calls are
// races.cc's, and ThreadSanitizer is not there. Two accesses are ordered by barriers of the block,
// by barriers that both warps wait at, by mbarriers at which one arrives and for which the other
// waits, and between the lanes of a warp by __syncwarp or anything else that all of them do
// together. What one lane has waited for at an mbarrier counts for its warp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace dsv4::emulation {

// Who accessed a stretch of memory.
struct Cell;
struct CellDeleter {
  void operator()(Cell* cell) const;
};
struct Region {
  const char* begin = nullptr;
  const char* end = nullptr;
  std::vector<std::unique_ptr<Cell, CellDeleter>> cells;

  bool Has(const char* at) const { return at >= begin && at < end; }
  Cell& CellOf(const char* at);
};

// What is known of a block.
struct RaceBlock {
  Region dynamic;
  uint64_t number = 0;
  // [w][v]: how far warp w knows of what warp v did; [w][w]: its own time.
  uint32_t seen[32][32] = {};
};
// A block begins, with its dynamic shared memory.
void BeginRaceBlock(const std::byte* shared, const std::byte* shared_end, RaceBlock* block);
// The block that runs from here on.
void UseRaceBlock(RaceBlock* block);
// The warps of the mask have met at a barrier.
void OrderWarps(uint32_t warps);
// All lanes of a warp did something together.
void OrderLanes(unsigned warp);
// The running thread gives way to another.
void EndTurn();
// The running thread's copy, while it is under way and when it is done.
void NoteCopy(const void* to, int bytes);
// Its atomic access.
void NoteAtomic(const void* at, int bytes);

// How far the warps had come that arrived somewhere.
using Clock = std::array<uint32_t, 32>;
// The running thread arrives: `clock` gets what its warp did before the lanes last did something
// together; or all that it did, if all lanes have arrived since then.
void Release(Clock& clock, bool all_lanes);
// The running thread has waited for those who arrived.
void Acquire(const Clock& clock);

}  // namespace dsv4::emulation
