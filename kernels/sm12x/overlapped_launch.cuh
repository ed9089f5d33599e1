// SPDX-License-Identifier: Apache-2.0
// Launches whose start overlaps the end of the previous kernel: blocks begin as soon as
// multiprocessors are free, and load weights, which no kernel writes, while earlier kernels end.
//
// Every thread of such a kernel waits for its predecessors before it reads the output of other
// kernels and before it writes. It must not read such output through restrict pointers or __ldg:
// the compiler may move those loads before the wait. The kernel lets its successor start
// - behind the wait (BeginAfterPredecessors), if it streams weights or fills the device;
// - at once (LetSuccessorStart first), if it leaves most of the device idle: the next kernel that
//   streams weights then loads its first ones while several kernels before it run
//   (docs/adr/0030-successors-start-at-once.md).
//
// Let L be the last kernel before K that lets its successor start behind the wait. K may read
// without waiting what was written by kernels before L: they were done when K started.
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "kernels/sm12x/arch/grid.cuh"

namespace dsv4::sm12x {

__device__ __forceinline__ void BeginAfterPredecessors() {
  WaitForPredecessors();
  LetSuccessorStart();
}

// The error of a failed launch, of either kind, remains CUDA's last error. Static: a source file
// launches from its own image (kernels/sm12x/host/device.h).

template <class... Params, class... Args>
static void LaunchWith(cudaLaunchAttribute* attribute, cudaStream_t stream, dim3 blocks,
                       int threads, int64_t shared_bytes, void (*kernel)(Params...),
                       Args&&... args) {
  // By their places: gridDim and blockDim are also names of what kernels read.
  const cudaLaunchConfig_t config = {
      blocks,    dim3(static_cast<unsigned>(threads)), static_cast<size_t>(shared_bytes), stream,
      attribute, attribute == nullptr ? 0u : 1u};
  constexpr int64_t kDefaultSharedBytes = 48 * 1024;
  if (shared_bytes > kDefaultSharedBytes) {
    (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared_bytes));
  }
  (void)cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...);
}

// A launch without overlap.
template <class... Params, class... Args>
static void LaunchInOrder(cudaStream_t stream, dim3 blocks, int threads, int64_t shared_bytes,
                          void (*kernel)(Params...), Args&&... args) {
  LaunchWith(nullptr, stream, blocks, threads, shared_bytes, kernel, std::forward<Args>(args)...);
}

template <class... Params, class... Args>
static void LaunchOverlapped(cudaStream_t stream, dim3 blocks, int threads, int64_t shared_bytes,
                             void (*kernel)(Params...), Args&&... args) {
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  LaunchWith(&overlap, stream, blocks, threads, shared_bytes, kernel, std::forward<Args>(args)...);
}

}  // namespace dsv4::sm12x
