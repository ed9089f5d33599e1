// SPDX-License-Identifier: Apache-2.0
// Exchanges activations between the ranks of an engine: one Communicator for each rank. An exchange
// is an all-gather: each rank computes some columns of a tensor and gathers the columns of the
// other ranks. Nothing is summed across ranks, so the bits do not depend on the number of ranks
// (docs/adr/0020-exact-split.md).
//
// Every rank makes the same exchanges in the same order, each on its own thread. A rank that fails
// aborts its communicator. All exchanges of all ranks then fail for good, including those that
// wait. A wait beyond the group's limit has the same effect.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/op/gather_columns.h"

namespace dsv4 {

struct GatherParams {
  int64_t rows = 0;
  ColumnShares shares{};
  // This rank's columns: rows of shares.SliceStride(rank) bytes; unused if the rank has no columns.
  // Other ranks read it until the next exchange returns, so the next exchange needs another slice.
  const std::byte* slice = nullptr;
  std::byte* whole = nullptr;  // rows of shares.WholeStride() bytes
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  // False if AllGather does nothing, for measurements (ExchangePath::kNone).
  virtual bool exchanges() const { return true; }
  // Called once, before the first exchange, by all ranks at the same time.
  virtual absl::Status Start() { return absl::OkStatus(); }
  // Gathers in the order of the rank's stream. Errors: DeviceLost if a rank has failed or is late.
  virtual absl::Status AllGather(const GatherParams& params) = 0;
  // Waits until the rank's device has made all its exchanges, while all ranks make progress. Call
  // it before anything that waits for the device without a limit. DeviceLost as AllGather.
  virtual absl::Status Synchronize() { return absl::OkStatus(); }
  // OK, or DeviceLost once a rank has failed or is late. Any thread.
  virtual absl::Status Check() = 0;
  // Reports that this rank failed because of `reason`. Any thread. The first reason is kept.
  virtual void Abort(const absl::Status& reason) = 0;
};

}  // namespace dsv4
