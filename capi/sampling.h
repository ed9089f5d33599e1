// SPDX-License-Identifier: Apache-2.0
// Converts sampling parameters of the C interface to those of lib/sampling.
#pragma once

#include <dsv4/sampling.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "lib/sampling/sampler.h"

namespace dsv4::capi {

// Copies the caller's parameters. A field that is 0 gets the value of `defaults`, the model's own,
// drafts those of the engine, and DSV4_SEED_RANDOM a random seed. The session checks the ranges.
absl::StatusOr<SamplingParams> SamplingFrom(const dsv4_sampling* given,
                                            const SamplingParams& defaults, int32_t engine_drafts);

}  // namespace dsv4::capi
