// SPDX-License-Identifier: Apache-2.0
// Contract of gather_columns: the part of an exchange between ranks (lib/dist) that runs on each of
// their devices. A rank has some columns of a tensor; it gets the other ranks' columns and writes
// the whole tensor. Ranks write short slices into each other's memory; long ones are read from
// where they lie.
#pragma once

#include <array>

#include "kernels/op/op.h"

namespace dsv4 {

inline constexpr int kMaxRanks = 8;

// How a rank tells the others that its columns are there. In its device's memory, which the others'
// kernels write; zeros before the first exchange.
struct ExchangeSignals {
  uint32_t arrived[kMaxRanks];  // [r]: the number of the last exchange that rank r has come to
  uint32_t done;                // exchanges that this rank has made
  uint32_t finished_blocks;     // of the running one
  uint32_t failed;              // 1 once a wait ended without its rank: no exchange waits any more
};

// Where the others write their slices to a rank, of up to kMostPushedBytes each. In its device's
// memory, in packets: 8 bytes of a slice in two words, each of 4 bytes and a flag that is
// 1 until the rank has taken the packet. Zeros before the first exchange. Exchanges use the two
// halves in turns: a rank that is at its next exchange may write before this one has ended.
inline constexpr int64_t kMostPushedBytes = int64_t{128} << 10;
struct ExchangeInbox {
  uint64_t packets[2][kMaxRanks][kMostPushedBytes / 8][2];  // [half][rank that writes]
};

// In host memory that all ranks' devices and the host see.
struct ExchangeFailure {
  uint32_t aborted;  // set by the host: waits end
  uint32_t late;  // set by a kernel whose wait took longer than its limit: 1 + the rank it was for
};

// What each rank has of a row: its columns, and a tail, which belongs behind all ranks' columns and
// the tails of the ranks before it (the scales of a quantised row). Rows begin at multiples of
// row_align, in the slices as in the whole.
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
  int32_t rank = 0;   // whose exchange it is
  int32_t ranks = 0;  // 1..8
  ColumnShares shares{};
  // Rows of SliceStride(r) bytes; unused where the rank has nothing.
  std::array<const std::byte*, kMaxRanks> slices{};
  std::byte* whole = nullptr;  // rows of WholeStride() bytes
  // Null: the slices are there. Else each rank's: the launch says on all of them that this rank has
  // come to its next exchange, and waits until the others have come to theirs of that number. A
  // rank's exchanges are launched in the order of one stream.
  std::array<ExchangeSignals*, kMaxRanks> signals{};
  // With signals: each rank's, or null where slices are read alone.
  std::array<ExchangeInbox*, kMaxRanks> inboxes{};
  ExchangeFailure* failure = nullptr;  // with signals
  int64_t limit_ns = 0;                // of a wait
};

absl::Status Validate(const GatherColumnsParams& params);
Cost CostOf(const GatherColumnsParams& params);
CallDims DimsOf(const GatherColumnsParams& params);  // rows, bytes of one: n

}  // namespace dsv4
