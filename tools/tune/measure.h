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

// Measures the entries with knobs of `operators`; empty: of all operators. Errors: InvalidArgument
// for an operator without knobs, NotFound for an entry without a benchmark case, Unsupported
// without a device.
absl::StatusOr<Measured> MeasureConfigs(const std::vector<std::string>& operators);

}  // namespace dsv4
