// SPDX-License-Identifier: Apache-2.0
// `dsv4-verify oracle`: the options, the case's checkpoint in a temporary folder, and the exit
// code. The rules are oracle_rules.h's.
#pragma once

#include "absl/types/span.h"

namespace dsv4 {

// Arguments after the command's name. Returns an ExitCode.
int RunOracleCommand(absl::Span<char* const> arguments);

}  // namespace dsv4
