// SPDX-License-Identifier: Apache-2.0
// dsv4-verify device: the known-answer test of a GPU with every config of every kernel, and a
// report of the devices for issues.
#pragma once

#include "absl/types/span.h"

namespace dsv4 {

int RunDeviceCommand(absl::Span<char* const> arguments);

}  // namespace dsv4
