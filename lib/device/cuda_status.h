// SPDX-License-Identifier: Apache-2.0
// The one place where results of the CUDA runtime become statuses.
#pragma once

#include "lib/device/cuda_runtime.h"

#include "absl/strings/string_view.h"
#include "lib/base/error.h"

namespace dsv4 {

// OK, or DeviceLost with the device and `what` was being done.
inline absl::Status CudaStatus(cudaError_t result, absl::string_view device,
                               absl::string_view what) {
  if (result == cudaSuccess) [[likely]]
    return absl::OkStatus();
  return DeviceLost(device, ": ", what, " failed: ", cudaGetErrorString(result), " (",
                    cudaGetErrorName(result), ")");
}

}  // namespace dsv4
