// SPDX-License-Identifier: Apache-2.0
// Maps calls to configs of a kernel entry: a tuning file after it was read and validated against
// the entry (kernels/tuning).
#pragma once

#include <array>
#include <limits>
#include <vector>

#include "kernels/registry/kernel_entry.h"

namespace dsv4 {

struct TuningRange {  // inclusive
  int64_t first = 0, last = std::numeric_limits<int64_t>::max();
};

struct TuningBucket {
  std::array<TuningRange, CallDims::kMost> when{};  // in the order of the entry's dims
  KernelConfig config{};
};

struct TuningTable {
  const KernelEntry* entry = nullptr;
  KernelConfig fallback{};              // of calls in no bucket
  std::vector<TuningBucket> buckets{};  // disjoint

  const KernelConfig& For(const CallDims& dims) const;
};

}  // namespace dsv4
