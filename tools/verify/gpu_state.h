// SPDX-License-Identifier: Apache-2.0
// What NVIDIA's management library (NVML) says of a GPU, and what of it is wrong. The library is
// found when it is first asked for; neither this build nor its host needs it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace dsv4 {

struct GpuState {
  std::string driver;                    // "580.82.07"
  int32_t cuda_version = 0;              // that the driver supports: 1000 * major + 10 * minor
  uint32_t sm_mhz = 0, most_sm_mhz = 0;  // clocks now, and the most of them
  uint32_t memory_mhz = 0, most_memory_mhz = 0;
  uint64_t throttle_reasons = 0;  // nvmlClocksThrottleReason bits
  uint32_t celsius = 0;
  double watts = 0, most_watts = 0;
  uint64_t uncorrected_errors = 0;  // of the memory since the driver was loaded
  int64_t memory_bytes = 0;
};

// Unsupported where there is no such library, or it does not know the GPU: says which.
absl::StatusOr<GpuState> ReadGpuState(const std::string& bus_id);

// "none", or the reasons that hold a clock down: "power cap, thermal".
std::string ThrottleReasons(uint64_t reasons);

// How long the device's own events say that work took, and how long the host waited for it.
struct DeviceTiming {
  double device_seconds = 0, host_seconds = 0;
};

// What is wrong with a device that was busy when `state` was read: clocks that stay down or stand
// still, slowdowns by the hardware, memory errors. One line each; empty: nothing. `state` may be
// null.
std::vector<std::string> GpuFindings(const GpuState* state, const DeviceTiming& timing);

}  // namespace dsv4
