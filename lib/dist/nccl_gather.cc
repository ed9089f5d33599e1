// SPDX-License-Identifier: Apache-2.0
#include "lib/dist/nccl_gather.h"

#include <algorithm>
#include <array>

#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/device/cuda_stream.h"

namespace dsv4 {

absl::Status NcclGather::Run(const GatherParams& params) const {
  const ColumnShares& shares = params.shares;
  int64_t row_bytes = 0;
  for (int r = 0; r < ranks; ++r) row_bytes += shares.SliceStride(r);
  const bool staged = params.rows > 1 || row_bytes != shares.WholeWidth();
  if (staged && row_bytes > kStagingBytes) {
    return Internal("an exchange has rows of ", row_bytes, " bytes; at most ", kStagingBytes,
                    " are supported");
  }
  const int64_t piece = staged ? kStagingBytes / row_bytes : 1;
  for (int64_t row = 0; row < params.rows; row += piece) {
    const int64_t rows = std::min(piece, params.rows - row);
    std::byte* const to = staged ? staging : params.whole;
    const std::byte* const slice =
        params.slice == nullptr ? nullptr : params.slice + row * shares.SliceStride(rank);
    DSV4_RETURN_IF_ERROR(Enqueue(shares, rows, slice, to));
    if (!staged) continue;
    std::array<const std::byte*, kMaxRanks> slices{};
    int64_t begin = 0;
    for (int r = 0; r < ranks; ++r) {
      slices[static_cast<size_t>(r)] = to + begin;
      begin += rows * shares.SliceStride(r);
    }
    DSV4_RETURN_IF_ERROR(Place(shares, rows, slices, params.whole + row * shares.WholeStride()));
  }
  return absl::OkStatus();
}

absl::Status NcclGather::Place(const ColumnShares& shares, int64_t rows,
                               const std::array<const std::byte*, kMaxRanks>& slices,
                               std::byte* whole) const {
  const GatherColumnsParams gather{.rows = rows,
                                   .rank = rank,
                                   .ranks = ranks,
                                   .shares = shares,
                                   .slices = slices,
                                   .whole = whole};
  const DeviceScope scope(own.device);
  return own.dispatch->Run(LaunchContext{.stream = &own.device->stream()}, gather);
}

absl::Status NcclGather::Enqueue(const ColumnShares& shares, int64_t rows, const std::byte* slice,
                                 std::byte* to) const {
  void* const stream = static_cast<CudaStream&>(own.device->stream()).handle();
  const DriverCall in_driver;
  const DeviceScope scope(own.device);
  const auto bytes = [&](int r) { return static_cast<size_t>(rows * shares.SliceStride(r)); };
  bool even = true;
  for (int r = 1; r < ranks; ++r) even = even && bytes(r) == bytes(0);
  if (even) {
    return nccl->Check(nccl->AllGather(slice, to, bytes(0), Nccl::kUint8, comm, stream),
                       "all-gather");
  }
  DSV4_RETURN_IF_ERROR(nccl->Check(nccl->GroupStart(), "a group of broadcasts"));
  int result = Nccl::kSuccess;
  for (int r = 0; r < ranks && result == Nccl::kSuccess; ++r) {
    if (bytes(r) > 0) {
      result = nccl->Broadcast(slice, to, bytes(r), Nccl::kUint8, r, comm, stream);
    }
    to += bytes(r);
  }
  const int ended = nccl->GroupEnd();
  return nccl->Check(result == Nccl::kSuccess ? ended : result, "broadcast");
}

}  // namespace dsv4
