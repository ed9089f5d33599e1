// SPDX-License-Identifier: Apache-2.0
// How the ranks of an engine exchange activations: one Communicator for each rank. Nothing is ever
// summed: a rank computes some columns of a tensor whole, and gathers the other ranks' columns. So
// the bits of the gathered tensor do not depend on the number of ranks
// (docs/adr/0020-exact-split.md).
//
// Every rank makes the same exchanges in the same order, on a thread of its own. A rank that fails
// aborts its communicator, which makes all exchanges of all ranks fail, those that are waiting
// included; so does a wait that takes longer than the group's limit. Both are for good.
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
  // This rank's columns: rows of shares.SliceStride(rank) bytes; unused where it has none. Other
  // ranks read it until the next exchange returns, which therefore needs another slice.
  const std::byte* slice = nullptr;
  std::byte* whole = nullptr;  // rows of shares.WholeStride() bytes
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  // False where AllGather leaves `whole` as it is, for measurements (ExchangePath::kNone).
  virtual bool exchanges() const { return true; }
  // Once, before the first exchange, by all ranks at the same time.
  virtual absl::Status Start() { return absl::OkStatus(); }
  // In the order of the rank's stream. DeviceLost once a rank has failed or is late.
  virtual absl::Status AllGather(const GatherParams& params) = 0;
  // Waits until the rank's device has made all its exchanges, while all ranks make progress. Call
  // it before anything that waits for the device without a limit. DeviceLost as AllGather.
  virtual absl::Status Synchronize() { return absl::OkStatus(); }
  // OK, or DeviceLost once a rank has failed or is late. Any thread.
  virtual absl::Status Check() = 0;
  // This rank failed, of `reason`. Any thread; the first reason stays.
  virtual void Abort(const absl::Status& reason) = 0;
};

}  // namespace dsv4
