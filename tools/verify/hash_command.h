// SPDX-License-Identifier: Apache-2.0
// `dsv4-verify hash`: the hashes of a model folder's weights.
#pragma once

#include "absl/types/span.h"

namespace dsv4 {

// Arguments after the command's name. Returns an ExitCode.
int RunHashCommand(absl::Span<char* const> arguments);

}  // namespace dsv4
