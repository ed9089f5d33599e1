// SPDX-License-Identifier: Apache-2.0
// The CUDA backend's list of kernels.
#pragma once

#include "kernels/registry/kernel_entry.h"

namespace dsv4 {

Manifest Sm12xManifest();

}  // namespace dsv4
