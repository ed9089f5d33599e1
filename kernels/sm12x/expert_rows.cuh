// SPDX-License-Identifier: Apache-2.0
// Which rows an expert gets: pairs of a row and one of its K experts (pair = row K + i), grouped by
// expert in ascending order, always the same way; experts outside [0, E) get none.
#pragma once

#include <cstdint>

#include "kernels/sm12x/arch/memory.cuh"
#include "kernels/sm12x/overlapped_launch.cuh"

namespace dsv4::sm12x {

inline constexpr int kGroupThreads = 256;
// Pairs of one RowGroup at most: of experts with few and with many.
inline constexpr int kSmallGroupRows = 16, kGroupRows = 64;

// Pairs [first, first + count) of the sorted list, all of one expert.
struct RowGroup {
  int32_t expert, first, count;
};

// The groups of all pairs of a launch, in device memory: those of experts with at most `small_rows`
// pairs apart from the others.
struct RowGroups {
  int32_t small_rows;
  int32_t* counts;   // [2]: small and large groups
  int32_t* pair_of;  // [pairs]: pairs sorted by expert
  RowGroup* small;   // [MaxSmallGroups]
  RowGroup* large;   // [MaxLargeGroups]
};
constexpr int64_t MaxSmallGroups(int64_t pairs, int64_t expert_count) {
  return pairs / kSmallGroupRows + (pairs < expert_count ? pairs : expert_count);
}
constexpr int64_t MaxLargeGroups(int64_t pairs, int64_t expert_count, int64_t small_rows) {
  const int64_t experts = pairs / (small_rows + 1);
  return pairs / kGroupRows + (experts < expert_count ? experts : expert_count);
}

// Places the pairs of one expert for which `matches(pair)` holds: list[0 ..) in ascending order,
// from pairs [0, pair_count). A block of kGroupThreads calls it; `counts` is shared memory of its
// warps. Returns their number, in every thread, behind a barrier.
template <class Matches>
__device__ __forceinline__ int ListPairs(int pair_count, int32_t* list, int32_t* counts,
                                         Matches&& matches) {
  constexpr int kWarps = kGroupThreads / 32;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // Each warp looks through its own stretch: it counts, and then places.
  const int stretch = (pair_count + kGroupThreads - 1) / kGroupThreads * 32;
  const int begin = warp * stretch, end = min(begin + stretch, pair_count);
  int found = 0;
  for (int base = begin; base < end; base += 32) {
    const bool match = base + lane < end && matches(base + lane);
    found += __popc(__ballot_sync(0xffffffffu, match));
  }
  if (lane == 0) counts[warp] = found;
  __syncthreads();
  int place = 0, total = 0;
  for (int i = 0; i < kWarps; ++i) {
    if (i < warp) place += counts[i];
    total += counts[i];
  }
  for (int base = begin; base < end; base += 32) {
    const bool match = base + lane < end && matches(base + lane);
    const uint32_t mask = __ballot_sync(0xffffffffu, match);
    if (match) list[place + __popc(mask & ((1u << lane) - 1))] = base + lane;
    place += __popc(mask);
  }
  __syncthreads();
  return total;
}

// One block an expert; each finds its own place among the others.
static __global__ void __launch_bounds__(kGroupThreads)
    group_rows_kernel(const int32_t* experts, int pair_count, int first_expert, int end_expert,
                      int expert_count, RowGroups out) {
  auto* const histogram = DynamicShared<int32_t>();  // [expert_count]
  __shared__ int32_t begin, before[2], total[2], counts[kGroupThreads / 32];
  BeginAfterPredecessors();
  const int me = static_cast<int>(blockIdx.x);
  for (int e = threadIdx.x; e < expert_count; e += kGroupThreads) histogram[e] = 0;
  if (threadIdx.x == 0) begin = before[0] = before[1] = total[0] = total[1] = 0;
  __syncthreads();
  for (int pair = threadIdx.x; pair < pair_count; pair += kGroupThreads) {
    const int32_t e = experts[pair];
    if (e >= first_expert && e < end_expert) atomicAdd(&histogram[e], 1);
  }
  __syncthreads();
  for (int e = threadIdx.x; e < expert_count; e += kGroupThreads) {
    const int32_t count = histogram[e], kind = count > out.small_rows;
    const int32_t most = kind == 0 ? kSmallGroupRows : kGroupRows,
                  groups = (count + most - 1) / most;
    if (e < me) {
      atomicAdd(&begin, count);
      atomicAdd(&before[kind], groups);
    }
    atomicAdd(&total[kind], groups);
  }
  __syncthreads();
  if (me == 0 && threadIdx.x < 2) out.counts[threadIdx.x] = total[threadIdx.x];
  if (histogram[me] == 0) return;
  const int count = ListPairs(pair_count, out.pair_of + begin, counts,
                              [&](int pair) { return experts[pair] == me; });
  const int kind = count > out.small_rows;
  RowGroup* const groups = (kind == 0 ? out.small : out.large) + before[kind];
  const int most = kind == 0 ? kSmallGroupRows : kGroupRows;
  for (int i = threadIdx.x; i * most < count; i += kGroupThreads) {
    groups[i] = {me, begin + i * most, min(count - i * most, most)};
  }
}

}  // namespace dsv4::sm12x
