// SPDX-License-Identifier: Apache-2.0
// `dsv4-verify canary`: a model folder's canary (lib/proof/canary.h), computed or written.
#pragma once

#include "absl/types/span.h"

namespace dsv4 {

// Arguments after the command's name. Returns an ExitCode.
int RunCanaryCommand(absl::Span<char* const> arguments);

}  // namespace dsv4
