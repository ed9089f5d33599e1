// SPDX-License-Identifier: Apache-2.0
// Converts the result of a step to the struct of the C interface.
#pragma once

#include <dsv4/session.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/session/session.h"

namespace dsv4::capi {

// Fills *result with the step's result, or with the finish of a failed step. result->text is a view
// into `step`. Returns the step's status. REQUIRES: StructSize(result) succeeded.
absl::Status CopyStepOut(const absl::StatusOr<StepResult>& step, dsv4_step_result* result);

}  // namespace dsv4::capi
