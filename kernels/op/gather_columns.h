// SPDX-License-Identifier: Apache-2.0
// Contract of gather_columns: an all-gather of columns between ranks (lib/dist), as each rank's
// device computes it. A rank has some columns of a tensor, gets the other ranks' columns and writes
// the whole tensor. Ranks write short slices into each other's inboxes, in device memory that they
// reach or in pinned host memory; long slices are read from the memory of their rank.
#pragma once

#include <array>

#include "kernels/op/op.h"

namespace dsv4 {

inline constexpr int kMaxRanks = 8;

// Tells a rank which others have their columns ready. Lies in the rank's device memory; the other
// ranks' kernels write to it. Zeros before the first exchange.
struct ExchangeSignals {
  uint32_t arrived[kMaxRanks];  // [r]: number of the last exchange that rank r has started
  uint32_t done;                // exchanges that this rank has completed
  uint32_t done_blocks;         // thread blocks that have completed the current exchange
  uint32_t failed;              // 1 after a wait timed out or was aborted; later ones do not wait
};

// Receives the other ranks' slices, of up to kMostPushedBytes each, in the rank's device memory or
// in pinned host memory. A packet holds 8 bytes of a slice in two words: 4 bytes each, below the
// number of the exchange. Zeros before the first exchange, whose number is 1. Exchanges alternate
// between the two halves, because a rank may start its next exchange before this rank has completed
// the current one.
inline constexpr int64_t kMostPushedBytes = int64_t{128} << 10;
struct ExchangeInbox {
  uint64_t packets[2][kMaxRanks][kMostPushedBytes / 8][2];  // [half][rank that writes]
};

// In host memory that the host and all ranks' devices can access.
struct ExchangeFailure {
  uint32_t aborted;  // set by the host: waits end
  uint32_t late;     // set by a kernel whose wait timed out: 1 + the rank it waited for
};

// Each rank's part of a row: its columns, and a tail (the scales of a quantised row). The whole row
// is all ranks' columns, then all ranks' tails. Rows begin at multiples of row_align bytes, in the
// slices and in the whole tensor.
struct ColumnShares {
  std::array<int64_t, kMaxRanks> widths{};  // bytes; 0: the rank has nothing
  std::array<int64_t, kMaxRanks> tails{};
  int64_t row_align = 1;

  constexpr int64_t SliceStride(int rank) const {
    const auto r = static_cast<size_t>(rank);
    return (widths[r] + tails[r] + row_align - 1) / row_align * row_align;
  }
  constexpr int64_t WholeWidth() const {
    int64_t bytes = 0;
    for (const int64_t width : widths) bytes += width;
    return bytes;
  }
  constexpr int64_t WholeStride() const {
    int64_t bytes = WholeWidth();
    for (const int64_t tail : tails) bytes += tail;
    return (bytes + row_align - 1) / row_align * row_align;
  }
};

// whole[row] = the ranks' columns of the row in their order, then their tails.
struct GatherColumnsParams {
  static constexpr Op kOp = Op::kGatherColumns;
  int64_t rows = 0;
  int32_t rank = 0;   // the rank of this device
  int32_t ranks = 0;  // 1..8
  ColumnShares shares{};
  // Rows of SliceStride(r) bytes; unused where the rank has nothing.
  std::array<const std::byte*, kMaxRanks> slices{};
  std::byte* whole = nullptr;  // rows of WholeStride() bytes
  // Each rank's signals. The launch announces this rank's next exchange to all ranks and waits
  // until they have announced the exchange of the same number. Null: all slices are ready, no wait.
  // REQUIRES: a rank's exchanges are launched on one stream.
  std::array<ExchangeSignals*, kMaxRanks> signals{};
  // Each rank's inbox, with signals only. Null: slices are read, not written.
  std::array<ExchangeInbox*, kMaxRanks> inboxes{};
  ExchangeFailure* failure = nullptr;  // with signals
  int64_t limit_ns = 0;                // of a wait
};

// Whether slices are short: ranks write them to each other. All ranks get the same answer.
bool PushesColumns(const GatherColumnsParams& params);

absl::Status Validate(const GatherColumnsParams& params);
Cost CostOf(const GatherColumnsParams& params);
CallDims DimsOf(const GatherColumnsParams& params);  // rows; n: bytes of a whole row

}  // namespace dsv4
