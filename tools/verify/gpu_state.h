// SPDX-License-Identifier: Apache-2.0
// The state of a GPU from NVIDIA's management library (NVML), and its faults. The library is loaded
// when it is first needed; neither the build nor the machine must have it.
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

// Errors: Unsupported, with the reason, if there is no such library or it does not know the GPU.
absl::StatusOr<GpuState> ReadGpuState(const std::string& bus_id);

// The reasons for a low clock, as in "power cap, thermal"; "none".
std::string ThrottleReasons(uint64_t reasons);

// The time of the same work by the device's events and by the host's clock.
struct DeviceTiming {
  double device_seconds = 0, host_seconds = 0;
};

// The faults of a device that was busy when `state` was read: clocks that stay low or stand still,
// slowdowns by the hardware, memory errors. One line for each. `state` may be null.
std::vector<std::string> GpuFindings(const GpuState* state, const DeviceTiming& timing);

}  // namespace dsv4
