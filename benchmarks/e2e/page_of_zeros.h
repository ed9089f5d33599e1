// SPDX-License-Identifier: Apache-2.0
// Takes the bytes of weights out of a step: its launches stay, but all they read is one page.
#pragma once

#include "absl/status/status.h"
#include "lib/engine/engine.h"

namespace dsv4 {

// Lets the views of the engine's matrices (not of the embedding) begin in a range of addresses that
// all lead to the same 2 MiB of device memory, which are zero. Kernels then read weights from L2.
// All routed experts of a layer become its first one, so that their scales stay in L2, too. Outputs
// are finite and of no meaning. Cannot be undone. The range is freed with the process. Not while a
// step runs. Errors: Unsupported for the CPU, for several devices, for experts outside the device
// and without CUDA's virtual memory; Internal from the driver.
absl::Status ReadPageOfZeros(Engine* engine);

}  // namespace dsv4
