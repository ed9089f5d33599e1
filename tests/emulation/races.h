// SPDX-License-Identifier: Apache-2.0
// Finds what the threads of a block do to the same bytes of shared memory with nothing to order it,
// whether or not the order in which they happen to run shows it. Writes of equal bytes are none.
// Kernels are compiled with -fsanitize=thread, which makes each access a call; the calls are
// races.cc's, and ThreadSanitizer is not there. Two accesses are ordered by barriers of the block,
// by barriers that both warps wait at, and between the lanes of a warp by __syncwarp or anything
// else that all of them do together.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dsv4::emulation {

// A block begins, with its dynamic shared memory.
void BeginRaceBlock(const std::byte* shared, const std::byte* shared_end);
// The warps of the mask have met at a barrier.
void OrderWarps(uint32_t warps);
// All lanes of a warp did something together.
void OrderLanes(unsigned warp);
// The running thread gives way to another.
void EndTurn();
// The running thread's copy, while it is under way and when it is done.
void NoteCopy(const void* to, int bytes);

}  // namespace dsv4::emulation
