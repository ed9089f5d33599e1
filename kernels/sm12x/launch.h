// SPDX-License-Identifier: Apache-2.0
// What every launcher of this backend needs: the CUDA stream of its launch.
#pragma once

#include "kernels/op/op.h"
#include "lib/device/cuda_runtime.h"
#include "lib/device/cuda_stream.h"

namespace dsv4 {

// REQUIRES: the launch is on a cuda device.
inline cudaStream_t CudaStreamOf(const LaunchContext& context) {
  return static_cast<cudaStream_t>(static_cast<CudaStream*>(context.stream)->handle());
}

}  // namespace dsv4
