// SPDX-License-Identifier: Apache-2.0
// The devices that a host can choose among.
#pragma once

#include <string>
#include <vector>

#include "lib/device/device.h"

namespace dsv4 {

// The GPUs as CUDA counts them, or an entry that says why there is none (Device::ListGpus), then
// the CPU. Memory of integrated GPUs and of the CPU is the system's. A GPU that failed its
// known-answer test in this process (ProveOnce) is not usable.
// `root`: see AvailableMemory.
std::vector<DeviceListing> ListDevices(const std::string& root = "");

}  // namespace dsv4
