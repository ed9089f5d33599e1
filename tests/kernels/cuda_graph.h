// SPDX-License-Identifier: Apache-2.0
// Runs one kernel entry of the CUDA backend on Params with device pointers: captured in a graph and
// replayed, as steps are, with a workspace of exactly the size that the entry asks for, filled with
// NaNs, and guards around it.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/registry/kernel_entry.h"
#include "lib/device/cuda_stream.h"
#include "tests/kernels/cuda_config.h"
#include "tests/kernels/cuda_memory.h"
#include "tests/support/status_test_macros.h"

namespace dsv4::test {

// A launch that can be repeated.
class CapturedLaunch {
 public:
  template <class Params>
  CapturedLaunch(const KernelEntry& entry, const Params& params)
      : name_(entry.name), workspace_(Bytes(entry, params)) {
    REQUIRE_OK(entry.supports(&params));
    REQUIRE_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    REQUIRE_CUDA(cudaMemset(workspace_.data(), 0xff, static_cast<size_t>(workspace_.size())));
    REQUIRE_CUDA(cudaDeviceSynchronize());
    CudaStream stream(stream_);
    LaunchContext context;
    context.stream = &stream;
    context.multiprocessors = CudaMultiprocessors();
    context.config = TestConfigOf(entry);
    context.workspace = workspace_.data();
    INFO(entry.name);
    REQUIRE_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal));
    entry.launch(context, &params);
    const cudaError_t launched = cudaPeekAtLastError();
    cudaGraph_t graph = nullptr;
    REQUIRE_CUDA(cudaStreamEndCapture(stream_, &graph));
    REQUIRE_CUDA(launched);
    REQUIRE_CUDA(cudaGraphInstantiate(&graph_, graph, 0));
    REQUIRE_CUDA(cudaGraphDestroy(graph));
  }
  CapturedLaunch(const CapturedLaunch&) = delete;
  ~CapturedLaunch() {
    if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  void Run() {
    INFO(name_);
    REQUIRE_CUDA(cudaGraphLaunch(graph_, stream_));
    REQUIRE_CUDA(cudaStreamSynchronize(stream_));
    REQUIRE(workspace_.Intact());
  }
  // Microseconds of one of `count` replays in a row.
  double Time(int count) {
    cudaEvent_t begin, end;
    REQUIRE_CUDA(cudaEventCreate(&begin));
    REQUIRE_CUDA(cudaEventCreate(&end));
    REQUIRE_CUDA(cudaGraphLaunch(graph_, stream_));
    REQUIRE_CUDA(cudaEventRecord(begin, stream_));
    for (int i = 0; i < count; ++i) REQUIRE_CUDA(cudaGraphLaunch(graph_, stream_));
    REQUIRE_CUDA(cudaEventRecord(end, stream_));
    REQUIRE_CUDA(cudaEventSynchronize(end));
    float milliseconds = 0;
    REQUIRE_CUDA(cudaEventElapsedTime(&milliseconds, begin, end));
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return milliseconds * 1000.0 / count;
  }

 private:
  template <class Params>
  static int64_t Bytes(const KernelEntry& entry, const Params& params) {
    return entry.workspace_bytes(&params, CudaMultiprocessors());
  }

  const char* name_;
  DeviceCopy<std::byte> workspace_;
  cudaStream_t stream_ = nullptr;
  cudaGraphExec_t graph_ = nullptr;
};

template <class Params>
void ReplayOnCuda(const KernelEntry& entry, const Params& params) {
  CapturedLaunch(entry, params).Run();
}

}  // namespace dsv4::test
