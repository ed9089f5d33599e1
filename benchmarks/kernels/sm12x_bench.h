// SPDX-License-Identifier: Apache-2.0
// Times operators of the CUDA backend by replayed graphs of launches one behind the other, at
// shapes that bench_sm12x_*.cc set up; for the programs of that name, and for tools/tune.
// As in the engine, weights and cached rows are not in L2: each launch has others than those before
// it. Activations are, where they fit: the kernel before has just written them.
#pragma once

#include "lib/device/cuda_runtime.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
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
// Which bits of each 32 are random, and which are set: numbers from 2^-7 to 2 and their negatives,
// FP8 and FP4 codes, scales near 1. An operand of one byte value would take less power than a
// model's, and so run at higher clocks.
struct RandomBits {
  uint32_t random = 0xffffffff, set = 0;
};
inline constexpr RandomBits kAnyBits{}, kFp8Codes{0xbfbfbfbf}, kScaleBytes{0x03030303, 0x74747474},
    kFp8Scales{0x0f0f0f0f, 0x28282828}, kBf16Numbers{0x83ff83ff, 0x3c003c00},
    kF32Numbers{0x83ffffff, 0x3c000000}, kPositiveF32{0x03ffffff, 0x3c000000};

// Device memory of such words, which repeat after 16 MB.
template <class T>
T* Random(int64_t bytes, RandomBits bits) {
  constexpr int64_t kPeriod = int64_t{16} << 20;
  std::vector<uint32_t> words(static_cast<size_t>(std::min(bytes, kPeriod) + 3) / 4);
  uint64_t state = 1;
  for (uint32_t& word : words) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    word = (static_cast<uint32_t>(state >> 32) & bits.random) | bits.set;
  }
  T* memory = Filled<T>(bytes, 0);
  for (int64_t at = 0; at < bytes; at += kPeriod) {
    Check(cudaMemcpy(reinterpret_cast<std::byte*>(memory) + at, words.data(),
                     static_cast<size_t>(std::min(bytes - at, kPeriod)), cudaMemcpyHostToDevice),
          "upload");
  }
  return memory;
}

template <class T>
T* Uploaded(const std::vector<T>& host) {
  T* memory = Filled<T>(static_cast<int64_t>(host.size() * sizeof(T)), 0);
  Check(cudaMemcpy(memory, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice), "upload");
  return memory;
}

// How many copies of `bytes` exceed L2 (up to 128 MB), so that no copy is found in it.
inline size_t CopiesBeyondL2(int64_t bytes) {
  constexpr int64_t kBeyondL2 = int64_t{640} << 20;
  return static_cast<size_t>(kBeyondL2 / bytes + 2);
}

// Seconds of each of `count` calls of `replay`, after one that is not counted; ascending.
inline std::vector<double> SecondsOf(cudaStream_t stream, int count,
                                     const std::function<void()>& replay) {
  cudaEvent_t begin, end;
  Check(cudaEventCreate(&begin), "event");
  Check(cudaEventCreate(&end), "event");
  std::vector<double> seconds;
  for (int i = 0; i <= count; ++i) {
    Check(cudaEventRecord(begin, stream), "event");
    replay();
    Check(cudaEventRecord(end, stream), "event");
    Check(cudaEventSynchronize(end), "replay");
    float milliseconds = 0;
    Check(cudaEventElapsedTime(&milliseconds, begin, end), "event");
    if (i > 0) seconds.push_back(milliseconds * 1e-3);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::sort(seconds.begin(), seconds.end());
  return seconds;
}

// One operator at one shape: launches of it one behind the other. `calls` are Params with device
// pointers, `dims` and `cost` those of one.
struct BenchCase {
  std::string name;  // begins with the operator's
  Op op;
  std::vector<const void*> calls;
  CallDims dims;
  Cost cost;
};

// Receives the cases. Check Wants before setting up a case.
class Bench {
 public:
  Bench() {
    Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
    Check(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, 0), "device");
    constexpr int64_t kBytes = int64_t{1} << 30;
    auto* from = Random<std::byte>(kBytes, kAnyBits);
    auto* to = Filled<std::byte>(kBytes, 0);
    copy_bandwidth_ =
        2.0 * kBytes / SecondsOf(stream_, 5, [&] {
          Check(cudaMemcpyAsync(to, from, kBytes, cudaMemcpyDeviceToDevice, stream_), "copy");
        })[0];
    cudaFree(from);
    cudaFree(to);
  }
  virtual ~Bench() = default;
  virtual bool Wants(const std::string& name) const = 0;

  template <class Params>
  void Run(const std::string& name, const std::vector<Params>& calls, Cost cost) {
    BenchCase one{name, Params::kOp, {}, DimsOf(calls[0]), cost};
    for (const Params& call : calls) one.calls.push_back(&call);
    Take(one);
  }

  // Bytes a second of a device copy: what is read and what is written.
  double copy_bandwidth() const { return copy_bandwidth_; }

 protected:
  virtual void Take(const BenchCase& one) = 0;

  // Seconds of a launch in each of `replays` replays of the case; ascending. `config`: null for the
  // entry's first.
  std::vector<double> Replay(const KernelEntry& entry, const KernelConfig* config,
                             const BenchCase& one, int replays) {
    CudaStream stream(stream_);
    LaunchContext context;
    context.stream = &stream;
    context.multiprocessors = multiprocessors_;
    context.config = config;
    context.workspace =
        Filled<std::byte>(entry.workspace_bytes(one.calls[0], multiprocessors_) + 64, 0);
    context.marked = Filled<std::byte>(kMarkedBytes, 0);
    Check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), "capture");
    for (const void* call : one.calls) entry.launch(context, call);
    cudaGraph_t graph;
    cudaGraphExec_t replay;
    Check(cudaStreamEndCapture(stream_, &graph), "capture");
    Check(cudaGraphInstantiate(&replay, graph, 0), "graph");
    std::vector<double> seconds =
        SecondsOf(stream_, replays, [&] { Check(cudaGraphLaunch(replay, stream_), "graph"); });
    for (double& s : seconds) s /= static_cast<double>(one.calls.size());
    cudaGraphExecDestroy(replay);
    cudaGraphDestroy(graph);
    cudaFree(context.workspace);
    return seconds;
  }

 private:
  cudaStream_t stream_ = nullptr;
  int32_t multiprocessors_ = 0;
  double copy_bandwidth_ = 0;
};

// The rate of the kernels' MMAs (kernels/sm12x/arch/mma.cuh) on operands in registers, with all
// multiprocessors busy, in flops per second.
struct MmaCeilings {
  double fp8 = 0, bf16 = 0;
};
MmaCeilings MeasureMmaCeilings();

// Hand their operators' cases at the model's shapes to `bench`.
void BenchMatrixOperators(Bench& bench);
void BenchAttentionOperators(Bench& bench);
// The same, and the cases that differ with rows in fp8_per_tensor.
void BenchAttentionFormats(Bench& bench);
void BenchStreamsOperators(Bench& bench);

}  // namespace dsv4
