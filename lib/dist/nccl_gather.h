// SPDX-License-Identifier: Apache-2.0
// An exchange by NCCL: an all-gather of the ranks' slices to staging memory, and a kernel that
// copies them to their columns.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/registry/dispatch.h"
#include "lib/device/device.h"
#include "lib/dist/communicator.h"
#include "lib/dist/nccl.h"

namespace dsv4 {

struct DeviceRank {
  Device* device = nullptr;
  Dispatch* dispatch = nullptr;
};

struct NcclGather {
  static constexpr int64_t kStagingBytes = int64_t{32} << 20;

  const Nccl* nccl;
  Nccl::Comm comm;
  DeviceRank own;
  int rank, ranks;
  std::byte* staging;  // kStagingBytes of the device

  // Enqueues the exchange, in pieces that fit the staging memory. A single row needs no kernel.
  absl::Status Run(const GatherParams& params) const;
  // Enqueues only the kernel, on slices that were gathered.
  absl::Status Place(const ColumnShares& shares, int64_t rows,
                     const std::array<const std::byte*, kMaxRanks>& slices, std::byte* whole) const;

 private:
  // The ranks' slices of `rows` rows, one behind the other in `to`.
  absl::Status Enqueue(const ColumnShares& shares, int64_t rows, const std::byte* slice,
                       std::byte* to) const;
};

}  // namespace dsv4
