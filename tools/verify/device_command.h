// SPDX-License-Identifier: Apache-2.0
// dsv4-verify device: the long form of the proof that engines ask of GPUs (lib/runtime), and a
// report of the devices that a user can paste.
#pragma once

#include "absl/types/span.h"

namespace dsv4 {

int RunDeviceCommand(absl::Span<char* const> arguments);

}  // namespace dsv4
