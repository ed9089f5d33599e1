// SPDX-License-Identifier: Apache-2.0
// Which rows an expert gets: pairs of a row and one of its K experts (pair = row K + i), grouped by
// expert in ascending order, always the same way; experts outside [0, E) get none.
#pragma once

#include <cstdint>

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

}  // namespace dsv4::sm12x
