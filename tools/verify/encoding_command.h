// SPDX-License-Identifier: Apache-2.0
// `dsv4-verify encoding`: the chat encoder and the completion parsers, of whole texts and of
// streams, against recorded results of the published ones.
#pragma once

#include "absl/types/span.h"

namespace dsv4 {

// Arguments after the command's name. Returns an ExitCode.
int RunEncodingCommand(absl::Span<char* const> arguments);

}  // namespace dsv4
