// SPDX-License-Identifier: Apache-2.0
// What a step gives, as it goes out through the C interface.
#pragma once

#include <dsv4/session.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/runtime/session.h"

namespace dsv4::capi {

// Fills *result, whose text is a view of that of `step`, or says there that the step failed.
// Returns the step's status. REQUIRES: StructSize(result) succeeded.
absl::Status CopyStepOut(const absl::StatusOr<StepResult>& step, dsv4_step_result* result);

}  // namespace dsv4::capi
