// SPDX-License-Identifier: Apache-2.0
// Every kernel of the SIMD backend that runs without a GPU.
#pragma once

#include "kernels/registry/kernel_entry.h"

namespace dsv4 {

Manifest CpuManifest();

}  // namespace dsv4
