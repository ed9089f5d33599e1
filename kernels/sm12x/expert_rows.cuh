// SPDX-License-Identifier: Apache-2.0
// The rows of each expert: pairs of a row and one of its K experts (pair = row K + i), sorted by
// expert and then ascending. Pairs with an expert outside [0, E) are left out.
#pragma once

#include <cstdint>

namespace dsv4::sm12x {

inline constexpr int kGroupThreads = 256;
// Most pairs of a group: in the kernels for few rows, and in the GEMM's three kinds of groups.
inline constexpr int kSplitGroupRows = 16;
inline constexpr int kSmallGroupRows = 8, kMiddleGroupRows = 32, kLargeGroupRows = 64;
inline constexpr int kGroupKinds = 3;

// Pairs [first, first + count) of the sorted list, all of one expert.
struct RowGroup {
  int32_t expert, first, count;
};

// The groups of all pairs of a launch, in device memory. An expert's pairs are cut into full groups
// of the last kind; the remainder is one group of the smallest kind that holds it.
struct RowGroups {
  int32_t kinds;              // at most kGroupKinds
  int32_t rows[kGroupKinds];  // most pairs of a group of the kind, ascending
  int32_t* counts;            // [kinds]
  int32_t* pair_of;           // [pairs]: pairs sorted by expert
  RowGroup* groups[kGroupKinds];

  // Constant indices only: kernel arguments have no addresses.
  __device__ __forceinline__ int32_t Largest() const {
    return kinds == 1 ? rows[0] : kinds == 2 ? rows[1] : rows[2];
  }
  __device__ __forceinline__ int32_t KindOfRest(int32_t rest) const {
    return (kinds > 1 && rest > rows[0]) + (kinds > 2 && rest > rows[1]);
  }
  __device__ __forceinline__ RowGroup* Groups(int32_t kind) const {
    return kind == 0 ? groups[0] : kind == 1 ? groups[1] : groups[2];
  }
  static_assert(kGroupKinds == 3);

  // Most groups of a kind.
  int64_t MostGroups(int32_t kind, int64_t pairs, int64_t expert_count) const {
    const int64_t fewest = kind == 0 ? 1 : rows[kind - 1] + 1;  // pairs of a remainder of this kind
    const int64_t rests = pairs / fewest < expert_count ? pairs / fewest : expert_count;
    return rests + (kind + 1 == kinds ? pairs / rows[kind] : 0);
  }
};

}  // namespace dsv4::sm12x
