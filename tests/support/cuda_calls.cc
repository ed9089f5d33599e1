// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cuda_calls.h"

#include "lib/device/cuda_runtime.h"

#include <atomic>

namespace {

std::atomic<int64_t> allocations, graphs, replays, launches, waits;

}  // namespace

// The linker's names: calls of f go to __wrap_f, and __real_f is what they went to before.
extern "C" {

cudaError_t __real_dsv4_cudaMalloc(void** memory, size_t bytes);
cudaError_t __wrap_dsv4_cudaMalloc(void** memory, size_t bytes) {
  ++allocations;
  return __real_dsv4_cudaMalloc(memory, bytes);
}

cudaError_t __real_dsv4_cudaHostAlloc(void** memory, size_t bytes, unsigned flags);
cudaError_t __wrap_dsv4_cudaHostAlloc(void** memory, size_t bytes, unsigned flags) {
  ++allocations;
  return __real_dsv4_cudaHostAlloc(memory, bytes, flags);
}

cudaError_t __real_dsv4_cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph,
                                             unsigned long long flags);
cudaError_t __wrap_dsv4_cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph,
                                             unsigned long long flags) {
  ++graphs;
  return __real_dsv4_cudaGraphInstantiate(made, graph, flags);
}

cudaError_t __real_dsv4_cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream);
cudaError_t __wrap_dsv4_cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  ++replays;
  return __real_dsv4_cudaGraphLaunch(graph, stream);
}

cudaError_t __real_dsv4_cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel,
                                            void** args);
cudaError_t __wrap_dsv4_cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel,
                                            void** args) {
  ++launches;
  return __real_dsv4_cudaLaunchKernelExC(config, kernel, args);
}

cudaError_t __real_dsv4_cudaStreamSynchronize(cudaStream_t stream);
cudaError_t __wrap_dsv4_cudaStreamSynchronize(cudaStream_t stream) {
  ++waits;
  return __real_dsv4_cudaStreamSynchronize(stream);
}

cudaError_t __real_dsv4_cudaEventSynchronize(cudaEvent_t event);
cudaError_t __wrap_dsv4_cudaEventSynchronize(cudaEvent_t event) {
  if (cudaEventQuery(event) == cudaErrorNotReady) {
    ++waits;
    cudaGetLastError();  // not a fault of a later call
  }
  return __real_dsv4_cudaEventSynchronize(event);
}

}  // extern "C"

namespace dsv4::test {

CudaCalls CountCudaCalls(absl::FunctionRef<void()> f) {
  const CudaCalls before{allocations, graphs, replays, launches, waits};
  f();
  return {allocations - before.allocations, graphs - before.graphs, replays - before.replays,
          launches - before.launches, waits - before.waits};
}

}  // namespace dsv4::test
