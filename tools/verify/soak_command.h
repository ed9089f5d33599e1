// SPDX-License-Identifier: Apache-2.0
// `dsv4-verify soak`: many sessions together, compared with undisturbed runs, for hours.
#pragma once

#include "absl/types/span.h"

namespace dsv4 {

// Arguments after the command's name. Returns an ExitCode.
int RunSoakCommand(absl::Span<char* const> arguments);

}  // namespace dsv4
