// SPDX-License-Identifier: Apache-2.0
// Which rows an expert gets: pairs of a row and one of its K experts (pair = row K + i), grouped by
// expert in ascending order, always the same way; experts outside [0, E) get none.
#pragma once

#include <cstdint>

#include "kernels/sm12x/overlapped_launch.cuh"

namespace dsv4::sm12x {

inline constexpr int kGroupThreads = 256;
inline constexpr int kGroupRows = 64;  // pairs of one RowGroup at most

// Pairs [first, first + count) of the sorted list, all of one expert.
struct RowGroup {
  int32_t expert, first, count;
};

// The groups of all pairs of a launch, in device memory.
struct RowGroups {
  int32_t* count;    // groups
  int32_t* pair_of;  // [pairs]: pairs sorted by expert
  RowGroup* groups;  // [MaxRowGroups]
};
constexpr int64_t MaxRowGroups(int64_t pairs, int64_t expert_count) {
  return pairs / kGroupRows + (pairs < expert_count ? pairs : expert_count);
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
    group_rows_kernel(const int32_t* experts, int pair_count, int expert_count, RowGroups out) {
  extern __shared__ int32_t histogram[];  // [expert_count]
  __shared__ int32_t begin, group_begin, group_total, counts[kGroupThreads / 32];
  BeginAfterPredecessors();
  const int me = static_cast<int>(blockIdx.x);
  for (int e = threadIdx.x; e < expert_count; e += kGroupThreads) histogram[e] = 0;
  if (threadIdx.x == 0) begin = group_begin = group_total = 0;
  __syncthreads();
  for (int pair = threadIdx.x; pair < pair_count; pair += kGroupThreads) {
    const int32_t e = experts[pair];
    if (e >= 0 && e < expert_count) atomicAdd(&histogram[e], 1);
  }
  __syncthreads();
  int32_t pairs_before = 0, groups_before = 0, groups = 0;
  for (int e = threadIdx.x; e < expert_count; e += kGroupThreads) {
    const int32_t count = histogram[e], e_groups = (count + kGroupRows - 1) / kGroupRows;
    if (e < me) {
      pairs_before += count;
      groups_before += e_groups;
    }
    groups += e_groups;
  }
  atomicAdd(&begin, pairs_before);
  atomicAdd(&group_begin, groups_before);
  atomicAdd(&group_total, groups);
  __syncthreads();
  if (me == 0 && threadIdx.x == 0) *out.count = group_total;
  if (histogram[me] == 0) return;
  const int count = ListPairs(pair_count, out.pair_of + begin, counts,
                              [&](int pair) { return experts[pair] == me; });
  for (int i = threadIdx.x; i * kGroupRows < count; i += kGroupThreads) {
    out.groups[group_begin + i] = {me, begin + i * kGroupRows,
                                   min(count - i * kGroupRows, kGroupRows)};
  }
}

}  // namespace dsv4::sm12x
