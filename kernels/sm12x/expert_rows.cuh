// SPDX-License-Identifier: Apache-2.0
// Which rows an expert gets: pairs of a row and one of its K experts (pair = row K + i), grouped by
// expert in ascending order, always the same way; experts outside [0, E) get none.
#pragma once

#include <cstdint>

namespace dsv4::sm12x {

inline constexpr int kGroupThreads = 256;
// Pairs of a group at most: of the kernels for few rows; and of the GEMM's three kinds of groups.
inline constexpr int kSplitGroupRows = 16;
inline constexpr int kSmallGroupRows = 8, kMiddleGroupRows = 32, kLargeGroupRows = 64;
inline constexpr int kGroupKinds = 3;

// Pairs [first, first + count) of the sorted list, all of one expert.
struct RowGroup {
  int32_t expert, first, count;
};

// The groups of all pairs of a launch, in device memory. An expert's pairs make full groups of the
// last kind, and the rest of them one of the first kind that holds it.
struct RowGroups {
  int32_t kinds;              // at most kGroupKinds
  int32_t rows[kGroupKinds];  // of a group at most, ascending
  int32_t* counts;            // [kinds]
  int32_t* pair_of;           // [pairs]: pairs sorted by expert
  RowGroup* groups[kGroupKinds];

  // Indices are constants in these: a kernel's arguments have no addresses.
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

  // Groups of a kind at most.
  int64_t MostGroups(int32_t kind, int64_t pairs, int64_t expert_count) const {
    const int64_t fewest = kind == 0 ? 1 : rows[kind - 1] + 1;  // pairs of a rest of this kind
    const int64_t rests = pairs / fewest < expert_count ? pairs / fewest : expert_count;
    return rests + (kind + 1 == kinds ? pairs / rows[kind] : 0);
  }
};

}  // namespace dsv4::sm12x
