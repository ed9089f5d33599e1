// SPDX-License-Identifier: Apache-2.0
// What a step gives, as it goes out through the C interface.
#pragma once

#include <dsv4/session.h>

#include "lib/runtime/session.h"

namespace dsv4::capi {

// The text is a view of that of `step`.
dsv4_step_result StepResultTo(const StepResult& step);

}  // namespace dsv4::capi
