// SPDX-License-Identifier: Apache-2.0
#include "kernels/op/gather_columns.h"

#include "lib/base/status_macros.h"

namespace dsv4 {
absl::Status Validate(const GatherColumnsParams& p) {
  DSV4_RETURN_IF_ERROR(Expect(p.rows >= 1 && p.ranks >= 1 && p.ranks <= kMaxRanks && p.rank >= 0 &&
                                  p.rank < p.ranks && p.whole != nullptr && p.shares.row_align >= 1,
                              "gather_columns: rows ", p.rows, ", rank ", p.rank, " of ", p.ranks,
                              " or a null pointer"));
  for (size_t rank = 0; rank < static_cast<size_t>(p.ranks); ++rank) {
    DSV4_RETURN_IF_ERROR(Expect(p.shares.widths[rank] >= 0 && p.shares.tails[rank] >= 0 &&
                                    (p.shares.widths[rank] == 0 || p.slices[rank] != nullptr) &&
                                    (p.signals[rank] == nullptr) == (p.signals[0] == nullptr) &&
                                    (p.inboxes[rank] == nullptr) == (p.inboxes[0] == nullptr),
                                "gather_columns: width ", p.shares.widths[rank], " of rank ", rank,
                                ", or its slice, signals or inbox is missing"));
  }
  return Expect(p.signals[0] == nullptr || (p.failure != nullptr && p.limit_ns > 0),
                "gather_columns: signals without a limit or a place for failures");
}

bool PushesColumns(const GatherColumnsParams& p) {
  if (p.inboxes[0] == nullptr) return false;
  for (size_t rank = 0; rank < static_cast<size_t>(p.ranks); ++rank) {
    const int64_t stride = p.shares.SliceStride(static_cast<int>(rank));
    if (stride % 8 != 0 || p.rows * stride > kMostPushedBytes ||
        reinterpret_cast<uintptr_t>(p.slices[rank]) % 8 != 0) {
      return false;
    }
  }
  return true;
}

Cost CostOf(const GatherColumnsParams& p) { return {.bytes = 2 * p.rows * p.shares.WholeStride()}; }

CallDims DimsOf(const GatherColumnsParams& p) {
  return {{"rows", p.rows}, {"n", p.shares.WholeStride()}};
}

}  // namespace dsv4
