// SPDX-License-Identifier: Apache-2.0
// `dsv4-verify doctor`: one page about the machine and where a model would run on it.
#pragma once

#include "absl/types/span.h"

namespace dsv4 {

// Arguments after the command's name. Returns an ExitCode.
int RunDoctorCommand(absl::Span<char* const> arguments);

}  // namespace dsv4
