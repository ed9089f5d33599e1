// SPDX-License-Identifier: Apache-2.0
// Measures every config of the CUDA backend's entries on this machine's device.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/tune/tables.h"

namespace dsv4 {

struct Measured {
  DeviceTraits device;
  std::string cuda;  // "13.0"
  std::map<const KernelEntry*, std::vector<Timing>> timings;
};

// Of the entries with knobs of `operators`; of all when it is empty. InvalidArgument for one that
// has none; NotFound for an entry that the benchmarks have no case for; Unsupported without a
// device.
absl::StatusOr<Measured> MeasureConfigs(const std::vector<std::string>& operators);

}  // namespace dsv4
