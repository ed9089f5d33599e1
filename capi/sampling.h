// SPDX-License-Identifier: Apache-2.0
// Sampling parameters as they come in through the C interface.
#pragma once

#include <dsv4/sampling.h>

#include "absl/status/statusor.h"
#include "lib/sampling/sampler.h"

namespace dsv4::capi {

// The caller's parameters; their ranges are left to the session.
absl::StatusOr<SamplingParams> SamplingFrom(const dsv4_sampling* given);

}  // namespace dsv4::capi
