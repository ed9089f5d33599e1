// SPDX-License-Identifier: Apache-2.0
// Estimates the time of reading experts in place. Kernels read experts from device and host memory
// concurrently and along with other data, so these reads cannot be timed alone. Copies of experts
// can: they are timed before the first pass.
#pragma once

#include "absl/status/statusor.h"
#include "lib/device/device.h"
#include "lib/model/expert_residency.h"

namespace dsv4 {

// Seconds to read an expert of a rank from each memory, at the rate of copies; 0 if no expert lies
// there.
struct ExpertReadTimes {
  double device = 0, host = 0;
};

// Times copies to slots that hold no expert yet, and waits for the device. REQUIRES: the device's
// lanes are unused; the plan has spare slots or guests. Errors: DeviceLost.
absl::StatusOr<ExpertReadTimes> MeasureExpertReads(const ResidencyPlan& plan,
                                                   const ExpertSlots& slots, Device* device);

}  // namespace dsv4
