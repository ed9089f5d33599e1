// SPDX-License-Identifier: Apache-2.0
// Kernels of one operator that follow one another: the second is brought to the multiprocessors
// while the first still runs (programmatic dependent launch), and waits there for its memory. A
// graph keeps that when it is captured.
#pragma once

#include <cuda_runtime.h>

namespace dsv4::sm12x {

// In the first kernel: the second may come as soon as every block has said so or is gone.
__device__ __forceinline__ void AllowSecondary() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// In the second: until the first has ended and its writes are visible. By every thread that reads
// them, and by one of each block at least.
__device__ __forceinline__ void WaitForPrimary() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

// Launches a kernel that calls WaitForPrimary behind one that calls AllowSecondary.
template <class Args>
void LaunchSecondary(void (*kernel)(Args), dim3 grid, int threads, cudaStream_t stream,
                     const Args& args) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  cudaLaunchKernelEx(&config, kernel, args);
}

}  // namespace dsv4::sm12x
