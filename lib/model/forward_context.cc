// SPDX-License-Identifier: Apache-2.0
#include "lib/model/forward_context.h"

#include <algorithm>
#include <array>

#include "lib/base/status_macros.h"

namespace dsv4 {
namespace {

// Kernels of more rows fill a device, and would need a larger workspace.
constexpr int32_t kMostRowsBeside = 64;

}  // namespace

absl::Status ForwardContext::Gather(int64_t rows, const Slices& slices, int64_t bytes,
                                    const void* part, void* whole) const {
  if (planning || alone()) return absl::OkStatus();
  std::array<int64_t, kMaxRanks> widths;
  const absl::Span<const Slice> all = slices.all();
  for (size_t r = 0; r < all.size(); ++r) widths[r] = all[r].size() * bytes;
  return communicator->AllGather({.rows = rows,
                                  .widths = absl::MakeConstSpan(widths).subspan(0, all.size()),
                                  .slice = static_cast<const std::byte*>(part),
                                  .whole = static_cast<std::byte*>(whole)});
}

absl::Status ForwardContext::RunBeside(
    absl::FunctionRef<absl::Status(const ForwardContext&)> first,
    absl::FunctionRef<absl::Status(const ForwardContext&)> second) const {
  ForwardContext beside = *this;
  if (planning) {
    DSV4_RETURN_IF_ERROR(first(*this));
    DSV4_RETURN_IF_ERROR(second(*this));
    if (side.stream == nullptr) return absl::OkStatus();
    beside.planned_stream = StreamRole::kSide;
    beside.step.rows = std::min(step.rows, kMostRowsBeside);
    return second(beside);
  }
  if (side.stream == nullptr || step.rows > kMostRowsBeside || dispatch->recording()) {
    DSV4_RETURN_IF_ERROR(first(*this));
    return second(*this);
  }
  beside.launch = side;
  DSV4_RETURN_IF_ERROR(device->Fork());
  absl::Status status = second(beside);
  if (status.ok()) status = first(*this);
  const absl::Status joined = device->Join();
  return status.ok() ? joined : status;
}

}  // namespace dsv4
