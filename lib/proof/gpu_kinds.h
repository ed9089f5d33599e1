// SPDX-License-Identifier: Apache-2.0
// The GPUs that an engine takes if the host names none: the best ones, all of one kind.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "lib/device/device.h"

namespace dsv4 {

// Usable GPUs of one kind, those with most free memory first.
struct GpuKind {
  std::string name;  // the vendor's
  int32_t compute_capability = 0;
  bool integrated = false;
  double bandwidth = 0;  // table value, bytes per second
  std::vector<int32_t> indices;
  std::vector<int64_t> free_bytes, total_bytes;  // of each
  // How many may be taken without being asked for: those of which others use less than half, or
  // one.
  size_t FreeCount() const;
  // The first `count` indices.
  std::vector<int32_t> Best(size_t count) const {
    return {indices.begin(), indices.begin() + static_cast<std::ptrdiff_t>(count)};
  }
};

std::vector<GpuKind> GpuKindsOf(absl::Span<const DeviceListing> devices);

// The best `count` GPUs of one kind: of the kind whose GPU with least free memory among them has
// most, in GiB; of several such kinds, the one with the fastest memory. Empty if no kind has so
// many.
std::vector<int32_t> BestGpus(absl::Span<const GpuKind> kinds, size_t count);

// "cuda:0,1 (2 x NVIDIA GeForce RTX 5090)"
std::string GpusText(const std::string& name, absl::Span<const int32_t> indices);

}  // namespace dsv4
