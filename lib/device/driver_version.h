// SPDX-License-Identifier: Apache-2.0
// Which NVIDIA driver a build needs and which one is installed.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace dsv4 {

// The oldest branch of drivers that runs programs of a CUDA runtime (13000: 13.0), from NVIDIA's
// release notes. Of 12.x: the oldest with images of compute capability 12.0.
constexpr int LeastDriver(int cuda_runtime) { return cuda_runtime >= 13000 ? 580 : 570; }

// Why CUDA refuses a driver: "driver 570.86.15 found, 580 or newer needed (CUDA 13.0)".
// `loaded`: the text of /sys/module/nvidia/version; empty where no NVIDIA driver is loaded.
// `driver_cuda`: the CUDA version that the driver supports, as cudaDriverGetVersion reports it; 0
// if there is none.
std::string DriverTooOld(absl::string_view loaded, int driver_cuda, int cuda_runtime);

// The version of the loaded kernel module; empty if there is none.
std::string LoadedDriver();

}  // namespace dsv4
