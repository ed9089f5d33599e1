// SPDX-License-Identifier: Apache-2.0
// Device::ListGpus of CUDA.
#pragma once

#include <vector>

#include "lib/device/device.h"

namespace dsv4 {

std::vector<DeviceListing> ListCudaDevices();

}  // namespace dsv4
