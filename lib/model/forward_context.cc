// SPDX-License-Identifier: Apache-2.0
#include "lib/model/forward_context.h"

#include <algorithm>

#include "lib/base/status_macros.h"
#include "lib/tensor/quant_format.h"

namespace dsv4 {
namespace {

// Kernels with more rows fill the device, and would need a larger workspace.
constexpr int32_t kMostSideRows = 64;

}  // namespace

absl::Status ForwardContext::Exchange(int64_t rows, const ColumnShares& shares, const void* part,
                                      void* whole) const {
  if (planning || alone()) return absl::OkStatus();
  dispatch->Flush();
  return communicator->AllGather({.rows = rows,
                                  .shares = shares,
                                  .slice = static_cast<const std::byte*>(part),
                                  .whole = static_cast<std::byte*>(whole)});
}

absl::Status ForwardContext::Gather(int64_t rows, const Slices& slices, int64_t bytes,
                                    const void* part, void* whole) const {
  ColumnShares shares;
  for (size_t r = 0; r < slices.all().size(); ++r) {
    shares.widths[r] = slices.all()[r].size() * bytes;
  }
  return Exchange(rows, shares, part, whole);
}

absl::Status ForwardContext::GatherQuantized(int64_t rows, const Slices& slices, int64_t width,
                                             const void* part, void* whole) const {
  if (dispatch->rows().quantized() == QuantizedRows::kRoundTrip) {
    return Gather(rows, slices, width * DTypeBytes(act_dtype()), part, whole);
  }
  ColumnShares shares{.row_align = 16};
  for (size_t r = 0; r < slices.all().size(); ++r) {
    shares.widths[r] = slices.all()[r].size() * width;
    shares.tails[r] = shares.widths[r] / kFp8Block;
  }
  return Exchange(rows, shares, part, whole);
}

absl::Status ForwardContext::RunConcurrently(
    absl::FunctionRef<absl::Status(const ForwardContext&)> first,
    absl::FunctionRef<absl::Status(const ForwardContext&)> second) const {
  ForwardContext side_context = *this;
  if (planning) {
    DSV4_RETURN_IF_ERROR(first(*this));
    DSV4_RETURN_IF_ERROR(second(*this));
    if (side.stream == nullptr) return absl::OkStatus();
    side_context.planned_stream = StreamRole::kSide;
    side_context.step.rows = std::min(step.rows, kMostSideRows);
    return second(side_context);
  }
  if (side.stream == nullptr || step.rows > kMostSideRows || dispatch->in_order()) {
    DSV4_RETURN_IF_ERROR(first(*this));
    return second(*this);
  }
  side_context.launch = side;
  dispatch->Flush();
  DSV4_RETURN_IF_ERROR(device->Fork());
  absl::Status status = second(side_context);
  if (status.ok()) status = first(*this);
  dispatch->Flush();
  const absl::Status joined = device->Join();
  return status.ok() ? joined : status;
}

}  // namespace dsv4
