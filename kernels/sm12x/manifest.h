// SPDX-License-Identifier: Apache-2.0
// The CUDA backend's list of kernels.
#pragma once

#include "kernels/registry/kernel_entry.h"

namespace dsv4 {

Manifest Sm12xManifest();
// The manifest of the second set: without the block-scaled MMA. Weights are packed for one of the
// sets.
Manifest Sm12xSecondManifest();

}  // namespace dsv4
