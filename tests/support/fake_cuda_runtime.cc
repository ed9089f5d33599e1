// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_cuda_runtime.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "lib/base/mutex.h"
#include "lib/device/cuda_runtime.h"
#include "lib/device/kernel_image.h"

namespace dsv4::test {
namespace {

constexpr int64_t kDefaultSharedBytes = 48 * 1024;

// What a graph has been given to do, in order. A handle of either kind of graph is one.
using Work = std::vector<std::function<void()>>;

// How often an event was recorded, and how many of those the work has come to. An event's handle is
// one.
struct Event {
  int64_t recorded = 0, reached = 0;
  std::chrono::steady_clock::time_point time{};  // of the last
  int64_t launched = 0;                          // kernels, before it was recorded last
};

struct State {
  FakeCuda gpu;  // changes while nothing runs
  std::atomic<bool> waits_hang = false, calls_hang = false;
  // Work enqueues work: clang's analysis has no recursive mutex. Taken before `mutex`.
  std::recursive_mutex working;
  std::deque<std::function<void()>> enqueued;  // guarded by `working`; not done yet; of all streams
  Work* recorded = nullptr;                    // likewise; of the stream that is captured
  Mutex mutex;
  FakeCudaUse use ABSL_GUARDED_BY(mutex);
  cudaError_t failure ABSL_GUARDED_BY(mutex) = cudaSuccess;
  cudaError_t last_error ABSL_GUARDED_BY(mutex) = cudaSuccess;  // for cudaGetLastError, once
  int64_t bytes ABSL_GUARDED_BY(mutex) = 0;
  int64_t others ABSL_GUARDED_BY(mutex) = 0;  // bytes of other processes, by TakeFakeMemory
  std::map<const void*, int64_t> pinned ABSL_GUARDED_BY(mutex);       // bytes, of allocations
  std::map<const void*, int64_t> allocations ABSL_GUARDED_BY(mutex);  // bytes
  std::map<const void*, int64_t> most_shared_bytes
      ABSL_GUARDED_BY(mutex);  // of kernels that were allowed more
  std::vector<FakeLaunch> launches ABSL_GUARDED_BY(mutex);
  // Kernels, of graphs none; and those that somebody waited for.
  int64_t launched ABSL_GUARDED_BY(mutex) = 0, awaited ABSL_GUARDED_BY(mutex) = 0;
};

State& TheState() {
  static State* const state = new State;
  return *state;
}

void StayWhile(const std::atomic<bool>& hangs) {
  while (hangs) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// What a call that may fail returns where nothing else is wrong.
cudaError_t Call() {
  State& state = TheState();
  StayWhile(state.calls_hang);
  MutexLock lock(&state.mutex);
  if (state.use.calls == state.gpu.hanging_call) {
    state.calls_hang = true;
    ++state.use.calls;
    const MutexUnlock unlock(&state.mutex);
    StayWhile(state.calls_hang);
    return cudaSuccess;
  }
  if (state.use.calls++ == state.gpu.failing_call) {
    state.failure =
        state.gpu.illegal_instruction ? cudaErrorIllegalInstruction : cudaErrorIllegalAddress;
    state.use.failed = true;
  }
  return state.failure;
}

cudaError_t Failure() {
  const MutexLock lock(&TheState().mutex);
  return TheState().failure;
}

// Most handles are there or not; nothing else is ever asked of them.
template <class T>
cudaError_t Make(T* handle) {
  const cudaError_t result = Call();
  if (result != cudaSuccess) return result;
  static char thing;
  *handle = reinterpret_cast<T>(&thing);
  const MutexLock lock(&TheState().mutex);
  ++TheState().use.left;
  return cudaSuccess;
}

cudaError_t Destroy() {
  const MutexLock lock(&TheState().mutex);
  --TheState().use.left;
  return TheState().failure;
}

// What a stream is given to do, or its graph. Nothing by a GPU that does not work.
cudaError_t Enqueue(std::function<void()> work) {
  const cudaError_t result = Call();
  State& state = TheState();
  if (result != cudaSuccess || !state.gpu.works) return result;
  const std::lock_guard lock(state.working);
  if (state.recorded != nullptr) {
    state.recorded->push_back(std::move(work));
  } else {
    state.enqueued.push_back(std::move(work));
  }
  return cudaSuccess;
}

// Does what is enqueued: all of it, or as far as the event. A GPU that has failed never does.
void DoEnqueued(const Event* until = nullptr) {
  State& state = TheState();
  const std::lock_guard lock(state.working);
  if (Failure() != cudaSuccess) state.enqueued.clear();
  while (!state.enqueued.empty() && (until == nullptr || until->reached < until->recorded)) {
    const std::function<void()> work = std::move(state.enqueued.front());
    state.enqueued.pop_front();
    work();
  }
}

cudaError_t Wait(const Event* event = nullptr) {
  const cudaError_t result = Call();
  StayWhile(TheState().waits_hang);
  {
    State& state = TheState();
    const MutexLock lock(&state.mutex);
    state.awaited = std::max(state.awaited, event == nullptr ? state.launched : event->launched);
  }
  DoEnqueued(event);
  return result;
}

cudaError_t Allocate(void** memory, size_t bytes) {
  const cudaError_t result = Call();
  if (result != cudaSuccess) return result;
  State& state = TheState();
  const MutexLock lock(&state.mutex);
  const auto count = static_cast<int64_t>(bytes);
  const bool fails =
      state.gpu.failing_allocation >= 0 && state.use.allocations >= state.gpu.failing_allocation;
  ++state.use.allocations;
  if (fails && state.gpu.refuses_map) return cudaErrorMapBufferObjectFailed;
  if (fails || (state.bytes + count > state.gpu.bytes && !state.gpu.pages)) {
    return cudaErrorMemoryAllocation;
  }
  // Pages are taken when they are touched, which few are.
  void* const pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) return cudaErrorMemoryAllocation;
  *memory = pages;
  state.allocations[pages] = count;
  state.bytes += count;
  ++state.use.left;
  return cudaSuccess;
}

cudaError_t Free(void* memory) {
  DoEnqueued();
  State& state = TheState();
  const MutexLock lock(&state.mutex);
  const auto pinned = state.pinned.find(memory);
  if (pinned != state.pinned.end()) {
    state.use.pinned -= pinned->second;
    state.pinned.erase(pinned);
  }
  const auto found = state.allocations.find(memory);
  if (found == state.allocations.end()) return cudaErrorInvalidValue;
  munmap(memory, static_cast<size_t>(found->second));
  state.bytes -= found->second;
  state.allocations.erase(found);
  --state.use.left;
  return state.failure;
}

// Keeps a launch for TakeFakeLaunches.
void Note(const std::string& symbol, const void* kernel, dim3 blocks, dim3 threads,
          size_t shared_bytes) {
  State& state = TheState();
  std::function<void(int64_t)> on_launch;
  int64_t launched = 0;
  {
    const std::lock_guard working(state.working);
    const MutexLock lock(&state.mutex);
    const bool recorded = state.recorded != nullptr;
    const auto most = state.most_shared_bytes.find(kernel);
    if (!recorded) {
      launched = ++state.launched;
      on_launch = state.gpu.on_launch;
    }
    state.launches.push_back({.symbol = symbol,
                              .kernel = kernel,
                              .blocks = {blocks.x, blocks.y, blocks.z},
                              .threads = int64_t{threads.x} * threads.y * threads.z,
                              .shared_bytes = static_cast<int64_t>(shared_bytes),
                              .most_shared_bytes = most == state.most_shared_bytes.end()
                                                       ? kDefaultSharedBytes
                                                       : most->second,
                              .recorded = recorded,
                              .ahead = recorded ? 0 : launched - state.awaited});
  }
  if (on_launch) on_launch(launched);
}

thread_local int current = 0;  // the device

FakeGpu GpuOf(int device) {
  const FakeCuda& gpu = TheState().gpu;
  if (!gpu.gpus.empty()) return gpu.gpus[static_cast<size_t>(device)];
  return {.name = gpu.name,
          .compute_capability = gpu.compute_capability,
          .multiprocessors = gpu.multiprocessors,
          .integrated = gpu.integrated,
          .bytes = gpu.bytes};
}

}  // namespace

void SetFakeCuda(const FakeCuda& gpu) {
  DoEnqueued();
  State& state = TheState();
  const MutexLock lock(&state.mutex);
  state.gpu = gpu;
  state.use = {.left = state.use.left};
  state.failure = cudaSuccess;
  state.most_shared_bytes.clear();
  state.launches.clear();
  state.launched = state.awaited = 0;
  state.others = 0;
}

void TakeFakeMemory(int64_t bytes) {
  const MutexLock lock(&TheState().mutex);
  TheState().others += bytes;
}

void HangFakeCuda() { TheState().waits_hang = true; }

void FreeFakeCuda() { TheState().waits_hang = TheState().calls_hang = false; }

FakeCudaUse GetFakeCudaUse() {
  const MutexLock lock(&TheState().mutex);
  return TheState().use;
}

void LeaveFakeCudaError() {
  const MutexLock lock(&TheState().mutex);
  TheState().last_error = cudaErrorInvalidConfiguration;
}

cudaError_t EnqueueFake(const void* kernel, const cudaLaunchConfig_t& config,
                        std::function<void()> work) {
  Note("", kernel, config.gridDim, config.blockDim, config.dynamicSmemBytes);
  return Enqueue(std::move(work));
}

std::vector<FakeLaunch> TakeFakeLaunches() {
  const MutexLock lock(&TheState().mutex);
  return std::exchange(TheState().launches, {});
}

}  // namespace dsv4::test

using dsv4::MutexLock;
using namespace dsv4::test;  // NOLINT: below are C's functions

extern "C" {
#pragma GCC visibility push(default)  // for libraries that a test loads

// `kernel`: a KernelImage::Kernel.
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void**) {
  if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  const cudaError_t result = Call();
  if (result == cudaSuccess) {
    Note(static_cast<const dsv4::KernelImage::Kernel*>(kernel)->symbol, kernel, config->gridDim,
         config->blockDim, config->dynamicSmemBytes);
  }
  return result;
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaErrorInvalidValue;
  {
    const MutexLock lock(&TheState().mutex);
    TheState().most_shared_bytes[kernel] = value;
  }
  return Call();
}

// These work on when a kernel has faulted.
cudaError_t cudaGetDeviceCount(int* count) {
  if (TheState().gpu.driver_cuda < 13000) {
    *count = 0;
    return cudaErrorInsufficientDriver;
  }
  const FakeCuda& gpu = TheState().gpu;
  *count = gpu.gpus.empty() ? gpu.count : static_cast<int>(gpu.gpus.size());
  return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = TheState().gpu.driver_cuda;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  current = device;
  return Call();
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  const FakeGpu gpu = GpuOf(device);
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "%s", gpu.name.c_str());
  properties->major = gpu.compute_capability / 10;
  properties->minor = gpu.compute_capability % 10;
  properties->multiProcessorCount = gpu.multiprocessors;
  properties->integrated = gpu.integrated ? 1 : 0;
  properties->totalGlobalMem = static_cast<size_t>(gpu.bytes);
  properties->sharedMemPerBlockOptin = 99 * 1024;
  return Call();
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  const FakeGpu gpu = GpuOf(device);
  switch (attribute) {
    case cudaDevAttrIntegrated:
      *value = gpu.integrated;
      return Call();
    case cudaDevAttrComputeMode:
      *value = TheState().gpu.prohibited ? cudaComputeModeProhibited : cudaComputeModeDefault;
      return Call();
    case cudaDevAttrKernelExecTimeout:
      *value = TheState().gpu.display;
      return Call();
    case cudaDevAttrMultiProcessorCount:
      *value = gpu.multiprocessors;
      return Call();
    case cudaDevAttrMpsEnabled:
      *value = TheState().gpu.side_by_side;
      return Call();
    default:
      return cudaErrorInvalidValue;
  }
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int size, int) {
  std::snprintf(id, static_cast<size_t>(size), "0000:00:00.0");
  return Call();
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return Call();
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaErrorInvalidDevice; }
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  {
    const MutexLock lock(&TheState().mutex);
    const FakeGpu gpu = GpuOf(current);
    *free = static_cast<size_t>(
        std::max<int64_t>(gpu.bytes - gpu.used - TheState().others - TheState().bytes, 0));
    *total = static_cast<size_t>(gpu.bytes);
  }
  return Call();
}

cudaError_t cudaMalloc(void** memory, size_t bytes) { return Allocate(memory, bytes); }
cudaError_t cudaFree(void* memory) { return Free(memory); }
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  State& state = TheState();
  const auto count = static_cast<int64_t>(bytes);
  {
    const MutexLock lock(&state.mutex);
    if (state.use.pinned + count > state.gpu.pinnable) {
      ++state.use.refusals;
      return cudaErrorMemoryAllocation;
    }
  }
  const cudaError_t result = Allocate(memory, bytes);
  if (result == cudaSuccess) {
    const MutexLock lock(&state.mutex);
    state.pinned[*memory] = count;
    state.use.pinned += count;
  }
  const int32_t value = TheState().gpu.pinned;
  if (result == cudaSuccess && value != 0)
    std::fill_n(static_cast<int32_t*>(*memory), bytes / sizeof value, value);
  return result;
}
cudaError_t cudaFreeHost(void* memory) { return Free(memory); }
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) {
  return Enqueue([=] { std::memset(to, value, bytes); });
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  const cudaError_t result = cudaMemsetAsync(to, value, bytes, nullptr);
  DoEnqueued();
  return result;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t) {
  if (!TheState().gpu.works && kind == cudaMemcpyDeviceToHost) std::memset(to, 0, bytes);
  return Enqueue([=] { std::memcpy(to, from, bytes); });
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  const cudaError_t result = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  DoEnqueued();
  return result;
}
cudaError_t cudaDeviceSynchronize() { return Wait(); }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return Make(stream); }
cudaError_t cudaStreamDestroy(cudaStream_t) { return Destroy(); }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return Wait(); }
// Who asks again and again waits, too.
cudaError_t cudaStreamQuery(cudaStream_t) {
  const cudaError_t result = Call();
  if (TheState().waits_hang) return cudaErrorNotReady;
  const std::lock_guard lock(TheState().working);
  if (result != cudaSuccess || TheState().enqueued.empty()) return result;
  const std::function<void()> work = std::move(TheState().enqueued.front());
  TheState().enqueued.pop_front();
  work();
  return TheState().enqueued.empty() ? result : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return Call(); }
// A stand-in for a library that is loaded calls it, too (stand_in_nccl.cc).
__attribute__((visibility("default"))) cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t f,
                                                                      void* data) {
  return Enqueue([=] { f(data); });
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  const cudaError_t result = Make(event);
  if (result == cudaSuccess) *event = reinterpret_cast<cudaEvent_t>(new Event);
  return result;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  DoEnqueued();
  delete reinterpret_cast<Event*>(event);
  return Destroy();
}
// One that is recorded in a graph orders what is done in order anyway.
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  const cudaError_t result = Call();
  State& state = TheState();
  const std::lock_guard lock(state.working);
  if (result != cudaSuccess || state.recorded != nullptr) return result;
  Event* const recorded = reinterpret_cast<Event*>(event);
  ++recorded->recorded;
  {
    const MutexLock counts(&state.mutex);
    recorded->launched = state.launched;
  }
  state.enqueued.push_back([recorded] {
    ++recorded->reached;
    recorded->time = std::chrono::steady_clock::now();
  });
  return result;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const cudaError_t result = Call();
  const std::lock_guard lock(TheState().working);
  const Event& queried = *reinterpret_cast<Event*>(event);
  return result == cudaSuccess && queried.reached < queried.recorded ? cudaErrorNotReady : result;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return Wait(reinterpret_cast<Event*>(event));
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const std::chrono::duration<float, std::milli> elapsed =
      reinterpret_cast<Event*>(end)->time - reinterpret_cast<Event*>(begin)->time;
  *milliseconds = TheState().gpu.stuck_clock
                      ? 0
                      : elapsed.count() * static_cast<float>(TheState().gpu.slowness);
  return Call();
}

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  const cudaError_t result = Call();
  const std::lock_guard lock(TheState().working);
  if (result == cudaSuccess) TheState().recorded = new Work;
  return result;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  const std::lock_guard lock(TheState().working);
  *status =
      TheState().recorded != nullptr ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return Call();
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  const std::lock_guard lock(TheState().working);
  std::unique_ptr<Work> recorded(std::exchange(TheState().recorded, nullptr));
  const cudaError_t result = Make(graph);
  if (result == cudaSuccess) *graph = reinterpret_cast<cudaGraph_t>(recorded.release());
  return result;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  const cudaError_t result = Make(made);
  if (result == cudaSuccess) {
    *made = reinterpret_cast<cudaGraphExec_t>(new Work(*reinterpret_cast<Work*>(graph)));
  }
  return result;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return Call(); }
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t) {
  return Enqueue([work = reinterpret_cast<Work*>(graph)] {
    for (const std::function<void()>& one : *work) one();
  });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete reinterpret_cast<Work*>(graph);
  return Destroy();
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  DoEnqueued();
  delete reinterpret_cast<Work*>(graph);
  return Destroy();
}

cudaError_t cudaGetLastError() {
  const MutexLock lock(&TheState().mutex);
  const cudaError_t last = std::exchange(TheState().last_error, cudaSuccess);
  return last != cudaSuccess ? last : TheState().failure;
}
cudaError_t cudaPeekAtLastError() {
  const MutexLock lock(&TheState().mutex);
  return TheState().last_error != cudaSuccess ? TheState().last_error : TheState().failure;
}
const char* cudaGetErrorName(cudaError_t) { return "fake"; }
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorIllegalInstruction ? "an illegal instruction was encountered" : "fake";
}

#pragma GCC visibility pop
}  // extern "C"
