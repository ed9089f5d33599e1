// SPDX-License-Identifier: Apache-2.0
// The functions of the CUDA runtime that this library uses, implemented over the driver
// (cuda_runtime.cc), which is loaded when the first of them is called. No program or library needs
// NVIDIA's runtime (cudart) for it. The symbols have names of their own, so that a program that
// links libdsv4's archive and a cudart of its own has both; they share the primary contexts.
//
// Types, declarations and documentation are those of NVIDIA's header. Other sources include this
// one instead of it.
#pragma once

#include <cuda_runtime_api.h>

// nvcc compiles no code of the host that is kept.
#ifndef __CUDACC__

namespace dsv4 {

// GCC's decltype(f) has the default arguments, too, which must not be given twice.
template <class F>
struct WithoutDefaults;
template <class Result, class... Params>
struct WithoutDefaults<Result(Params...)> {
  using Type = Result(Params...);
};

}  // namespace dsv4

#define DSV4_CUDA_FUNCTION(name) \
  extern "C" dsv4::WithoutDefaults<decltype(name)>::Type name __asm__("dsv4_" #name);
DSV4_CUDA_FUNCTION(cudaDeviceCanAccessPeer)
DSV4_CUDA_FUNCTION(cudaDeviceEnablePeerAccess)
DSV4_CUDA_FUNCTION(cudaDeviceGetAttribute)
DSV4_CUDA_FUNCTION(cudaDeviceGetPCIBusId)
DSV4_CUDA_FUNCTION(cudaDeviceSynchronize)
DSV4_CUDA_FUNCTION(cudaDriverGetVersion)
DSV4_CUDA_FUNCTION(cudaEventCreate)
DSV4_CUDA_FUNCTION(cudaEventCreateWithFlags)
DSV4_CUDA_FUNCTION(cudaEventDestroy)
DSV4_CUDA_FUNCTION(cudaEventElapsedTime)
DSV4_CUDA_FUNCTION(cudaEventQuery)
DSV4_CUDA_FUNCTION(cudaEventRecord)
DSV4_CUDA_FUNCTION(cudaEventSynchronize)
DSV4_CUDA_FUNCTION(cudaFree)
DSV4_CUDA_FUNCTION(cudaFreeHost)
DSV4_CUDA_FUNCTION(cudaFuncSetAttribute)
DSV4_CUDA_FUNCTION(cudaGetDevice)
DSV4_CUDA_FUNCTION(cudaGetDeviceCount)
DSV4_CUDA_FUNCTION(cudaGetDeviceProperties)
DSV4_CUDA_FUNCTION(cudaGetErrorName)
DSV4_CUDA_FUNCTION(cudaGetErrorString)
DSV4_CUDA_FUNCTION(cudaGetLastError)
DSV4_CUDA_FUNCTION(cudaGraphDestroy)
DSV4_CUDA_FUNCTION(cudaGraphExecDestroy)
DSV4_CUDA_FUNCTION(cudaGraphInstantiate)
DSV4_CUDA_FUNCTION(cudaGraphLaunch)
DSV4_CUDA_FUNCTION(cudaGraphUpload)
DSV4_CUDA_FUNCTION(cudaHostAlloc)
DSV4_CUDA_FUNCTION(cudaLaunchHostFunc)
DSV4_CUDA_FUNCTION(cudaLaunchKernelExC)
DSV4_CUDA_FUNCTION(cudaMalloc)
DSV4_CUDA_FUNCTION(cudaMemcpy)
DSV4_CUDA_FUNCTION(cudaMemcpyAsync)
DSV4_CUDA_FUNCTION(cudaMemGetInfo)
DSV4_CUDA_FUNCTION(cudaMemset)
DSV4_CUDA_FUNCTION(cudaMemsetAsync)
DSV4_CUDA_FUNCTION(cudaPeekAtLastError)
DSV4_CUDA_FUNCTION(cudaSetDevice)
DSV4_CUDA_FUNCTION(cudaStreamBeginCapture)
DSV4_CUDA_FUNCTION(cudaStreamCreateWithFlags)
DSV4_CUDA_FUNCTION(cudaStreamDestroy)
DSV4_CUDA_FUNCTION(cudaStreamEndCapture)
DSV4_CUDA_FUNCTION(cudaStreamQuery)
DSV4_CUDA_FUNCTION(cudaStreamSynchronize)
DSV4_CUDA_FUNCTION(cudaStreamWaitEvent)
#undef DSV4_CUDA_FUNCTION

#endif  // __CUDACC__
