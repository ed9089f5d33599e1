// SPDX-License-Identifier: Apache-2.0
// How the ranks of an engine exchange activations: one Communicator for each rank. Nothing is ever
// summed: a rank computes some columns of a tensor whole, and gathers the other ranks' columns. So
// the bits of the gathered tensor do not depend on the number of ranks
// (docs/adr/0020-exact-split.md).
//
// Every rank makes the same exchanges in the same order. A rank that fails aborts its communicator,
// which makes all exchanges of all ranks fail, those that are waiting included; so does a wait that
// takes longer than the group's limit. Both are for good.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace dsv4 {

inline constexpr int kMaxRanks = 8;

struct GatherParams {
  int64_t rows = 0;
  absl::Span<const int64_t> widths{};  // [ranks] bytes that each rank has of a row; 0: none
  // [rows, widths[rank]]; unused where that is 0. Other ranks read it until the next exchange
  // returns, which therefore needs another slice.
  const std::byte* slice = nullptr;
  std::byte* whole = nullptr;  // [rows, sum of widths]: the ranks' columns in their order
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  // In the order of the rank's stream. DeviceLost once a rank has failed or is late.
  virtual absl::Status AllGather(const GatherParams& params) = 0;
  // This rank failed, of `reason`. Any thread; the first reason stays.
  virtual void Abort(const absl::Status& reason) = 0;
};

}  // namespace dsv4
