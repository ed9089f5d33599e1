// SPDX-License-Identifier: Apache-2.0
// Times operators of the CUDA backend by replayed graphs of launches one behind the other. Prints a
// CSV line for each: microseconds of a launch, bytes and flops a second, and the share of the
// floor, which is the bytes of Cost over the bandwidth of a device copy measured in the same run.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "kernels/sm12x/manifest.h"
#include "lib/device/cuda_stream.h"

namespace dsv4 {

inline void Check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(result));
  std::exit(1);
}

// Device memory filled with `byte`; freed with the process.
template <class T>
T* Filled(int64_t bytes, int byte) {
  void* memory = nullptr;
  Check(cudaMalloc(&memory, static_cast<size_t>(bytes)), "cudaMalloc");
  Check(cudaMemset(memory, byte, static_cast<size_t>(bytes)), "cudaMemset");
  return static_cast<T*>(memory);
}
template <class T>
T* Uploaded(const std::vector<T>& host) {
  T* memory = Filled<T>(static_cast<int64_t>(host.size() * sizeof(T)), 0);
  Check(cudaMemcpy(memory, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice), "upload");
  return memory;
}

// Seconds of one call of `replay`, the shortest of several.
inline double SecondsOf(cudaStream_t stream, const std::function<void()>& replay) {
  cudaEvent_t begin, end;
  Check(cudaEventCreate(&begin), "event");
  Check(cudaEventCreate(&end), "event");
  constexpr int kReplays = 5;
  float best = 1e30f;
  for (int i = 0; i <= kReplays; ++i) {
    Check(cudaEventRecord(begin, stream), "event");
    replay();
    Check(cudaEventRecord(end, stream), "event");
    Check(cudaEventSynchronize(end), "replay");
    float milliseconds = 0;
    Check(cudaEventElapsedTime(&milliseconds, begin, end), "event");
    if (i > 0) best = std::min(best, milliseconds);
  }
  return best * 1e-3;
}

class Bench {
 public:
  explicit Bench(std::string only) : only_(std::move(only)) {
    Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
    constexpr int64_t kBytes = int64_t{1} << 30;
    auto* from = Filled<std::byte>(kBytes, 1);
    auto* to = Filled<std::byte>(kBytes, 2);
    const double seconds = SecondsOf(stream_, [&] {
      Check(cudaMemcpyAsync(to, from, kBytes, cudaMemcpyDeviceToDevice, stream_), "copy");
    });
    bandwidth_ = 2.0 * kBytes / seconds;
    cudaFree(from);
    cudaFree(to);
    std::printf("# device copy %.0f GB/s\noperator,rows,us,GB/s,TFLOP/s,floor_us,percent\n",
                bandwidth_ * 1e-9);
  }
  bool Wants(const std::string& name) const { return name.find(only_) != std::string::npos; }

  // Launches `calls` one behind the other.
  template <class Params>
  void Run(const std::string& name, int32_t rows, const std::vector<Params>& calls, Cost cost) {
    const KernelEntry* entry = nullptr;
    for (const KernelEntry& e : Sm12xManifest()) {
      if (e.op == Params::kOp) entry = &e;
    }
    LaunchContext context;
    CudaStream stream(stream_);
    context.stream = &stream;
    Check(cudaDeviceGetAttribute(&context.multiprocessors, cudaDevAttrMultiProcessorCount, 0),
          "device");
    context.workspace =
        Filled<std::byte>(entry->workspace_bytes(&calls[0], context.multiprocessors) + 64, 0);
    Check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), "capture");
    for (const Params& call : calls) entry->launch(context, &call);
    cudaGraph_t graph;
    cudaGraphExec_t replay;
    Check(cudaStreamEndCapture(stream_, &graph), "capture");
    Check(cudaGraphInstantiate(&replay, graph, 0), "graph");
    const double seconds =
        SecondsOf(stream_, [&] { Check(cudaGraphLaunch(replay, stream_), "graph"); }) /
        static_cast<double>(calls.size());
    const double floor = static_cast<double>(cost.bytes) / bandwidth_;
    std::printf("%s,%d,%.2f,%.0f,%.1f,%.2f,%.1f\n", name.c_str(), rows, seconds * 1e6,
                static_cast<double>(cost.bytes) / seconds * 1e-9,
                static_cast<double>(cost.flops) / seconds * 1e-12, floor * 1e6,
                100 * floor / seconds);
    std::fflush(stdout);
    cudaGraphExecDestroy(replay);
    cudaGraphDestroy(graph);
    cudaFree(context.workspace);
  }

 private:
  std::string only_;
  cudaStream_t stream_ = nullptr;
  double bandwidth_ = 0;
};

}  // namespace dsv4
