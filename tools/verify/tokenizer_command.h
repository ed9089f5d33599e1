// SPDX-License-Identifier: Apache-2.0
// `dsv4-verify tokenizer`: a tokenizer.json against recorded encodings and decodings.
#pragma once

#include "absl/types/span.h"

namespace dsv4 {

// Arguments after the command's name. Returns an ExitCode.
int RunTokenizerCommand(absl::Span<char* const> arguments);

}  // namespace dsv4
