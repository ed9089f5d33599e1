// SPDX-License-Identifier: Apache-2.0
#include "lib/device/device.h"

#include <chrono>

#include "lib/base/status_macros.h"

namespace dsv4 {

absl::Status Device::Gather(std::byte* to, absl::Span<const MemoryPiece> from) {
  for (const MemoryPiece& piece : from) {
    DSV4_RETURN_IF_ERROR(Download(to, piece.data, piece.bytes));
    to += piece.bytes;
  }
  return absl::OkStatus();
}

absl::Status Device::StartCopies(absl::Span<const MemoryCopy> copies) {
  for (const MemoryCopy& copy : copies) {
    DSV4_RETURN_IF_ERROR(Copy(copy.to, copy.from, copy.bytes));
  }
  return absl::OkStatus();
}

absl::Status Device::StartLane(int, absl::Span<const MemoryCopy> copies) {
  return StartCopies(copies);
}

absl::Status Device::Scatter(absl::Span<const MemoryPiece> to, const std::byte* from) {
  for (const MemoryPiece& piece : to) {
    DSV4_RETURN_IF_ERROR(Upload(piece.data, from, piece.bytes));
    from += piece.bytes;
  }
  return absl::OkStatus();
}

double Device::SecondsOf(absl::FunctionRef<void()> enqueue) {
  const auto start = std::chrono::steady_clock::now();
  enqueue();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace dsv4
