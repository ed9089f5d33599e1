// SPDX-License-Identifier: Apache-2.0
// What reads of experts in place are estimated to take. Kernels read experts of the device's memory
// and of the host's where they lie, at once and with other things, so no clock sees these reads
// alone. Copies of experts can be timed, and are, before the first pass.
#pragma once

#include "absl/status/statusor.h"
#include "lib/device/device.h"
#include "lib/model/expert_residency.h"

namespace dsv4 {

// Seconds that it takes to read an expert of a rank from a memory, at the rate of copies; 0 where
// no expert lies there.
struct ExpertReadTimes {
  double device = 0, host = 0;
};

// By copies to slots that hold no expert yet. Waits for the device. REQUIRES: nothing uses the
// device's lanes; the plan has spare slots or guests. Errors: DeviceLost.
absl::StatusOr<ExpertReadTimes> MeasureExpertReads(const ResidencyPlan& plan,
                                                   const ExpertSlots& slots, Device* device);

}  // namespace dsv4
