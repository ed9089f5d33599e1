// SPDX-License-Identifier: Apache-2.0
// What a kernel may ask of a device, as plain values: tests make devices up.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "absl/status/status.h"

namespace dsv4 {

// Instructions that not every device has; bits of a set.
enum DeviceFeature : uint32_t {
  kAsyncCopy = 1u << 0,        // cp.async
  kFp8Conversion = 1u << 1,    // between e4m3 and f16
  kDependentLaunch = 1u << 2,  // a kernel may begin before its predecessor ends
  kBlockScaledMma = 1u << 3,   // mma.sync with scales for runs of K
};

// Of a compute capability, 10 * major + minor.
uint32_t FeaturesOf(int32_t compute_capability);

// "12.0" for 120.
std::string ComputeCapabilityName(int32_t compute_capability);

struct DeviceTraits {
  std::string name;
  int32_t compute_capability = 0;  // 10 * major + minor; 0: a cpu
  int32_t multiprocessors = 1;     // of a cpu: threads
  uint32_t features = 0;           // DeviceFeature bits
  int64_t shared_bytes = 0;        // of shared memory that one block may have
};

// The least that a kernel works with.
struct DeviceNeeds {
  int32_t compute_capability_min = 0;
  int32_t compute_capability_max = std::numeric_limits<int32_t>::max();
  uint32_t features = 0;
  int64_t shared_bytes = 0;
};

// Unsupported, with what the device lacks.
absl::Status ExpectTraits(const DeviceNeeds& needs, const DeviceTraits& traits);

}  // namespace dsv4
