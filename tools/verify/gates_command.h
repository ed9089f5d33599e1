// SPDX-License-Identifier: Apache-2.0
// `dsv4-verify gates`: a model folder's gates.json answered greedily through sessions.
#pragma once

#include "absl/types/span.h"

namespace dsv4 {

// Arguments after the command's name. Returns an ExitCode.
int RunGatesCommand(absl::Span<char* const> arguments);

}  // namespace dsv4
