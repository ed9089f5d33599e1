// SPDX-License-Identifier: Apache-2.0
// Each function does what NVIDIA's runtime does, as its documentation says and as far as this
// library can tell: errors are the driver's, whose numbers the runtime shares; a device is used
// through its primary context; a thread that has a context uses it, whoever made it current.
#include "lib/device/cuda_runtime.h"

#include <cuda.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "lib/base/loaded_library.h"
#include "lib/base/mutex.h"
#include "lib/device/kernel_image.h"

namespace dsv4 {
namespace {

// As a macro of NVIDIA's header, if it is one, names the version of a function that it declares.
#define DSV4_TEXT_OF(name) #name
#define DSV4_SYMBOL_OF(name) DSV4_TEXT_OF(name)

// The driver's functions.
class Driver {
 public:
  static const Driver& Get() {
    static const Driver driver;
    return driver;
  }
  // What every call returns where no driver is there that runs this build.
  cudaError_t error() const { return error_; }
  // The version of CUDA that the driver supports, 13000 for 13.0; 0 without a driver.
  int version() const { return version_; }

// clang-format off
#define DSV4_DRIVER_FUNCTIONS(F) \
  F(cuInit) F(cuDriverGetVersion) F(cuGetErrorName) F(cuGetErrorString) F(cuDeviceGet) \
  F(cuDeviceGetCount) F(cuDeviceGetName) F(cuDeviceGetAttribute) F(cuDeviceTotalMem) \
  F(cuDeviceGetPCIBusId) F(cuDeviceCanAccessPeer) F(cuDevicePrimaryCtxRetain) \
  F(cuCtxSetCurrent) F(cuCtxGetCurrent) F(cuCtxGetDevice) F(cuCtxSynchronize) \
  F(cuCtxEnablePeerAccess) F(cuMemGetInfo) F(cuMemAlloc) F(cuMemFree) F(cuMemHostAlloc) \
  F(cuMemFreeHost) F(cuMemcpy) F(cuMemcpyAsync) F(cuMemcpyHtoDAsync) F(cuMemcpyDtoHAsync) \
  F(cuMemcpyDtoDAsync) F(cuMemsetD8) F(cuMemsetD8Async) F(cuStreamCreate) F(cuStreamDestroy) \
  F(cuStreamSynchronize) F(cuStreamQuery) F(cuStreamWaitEvent) F(cuStreamBeginCapture) \
  F(cuStreamEndCapture) F(cuEventCreate) F(cuEventDestroy) F(cuEventRecord) F(cuEventQuery) \
  F(cuEventSynchronize) F(cuEventElapsedTime) F(cuGraphInstantiateWithFlags) F(cuGraphUpload) \
  F(cuGraphLaunch) F(cuGraphDestroy) F(cuGraphExecDestroy) F(cuLaunchHostFunc) \
  F(cuLaunchKernelEx) F(cuLibraryLoadData) F(cuLibraryGetKernel) F(cuKernelSetAttribute) \
  F(cuThreadExchangeStreamCaptureMode)
// clang-format on
#define DSV4_DECLARE(name) decltype(&::name) name##_ = nullptr;
  DSV4_DRIVER_FUNCTIONS(DSV4_DECLARE)
#undef DSV4_DECLARE

 private:
  Driver() : error_(Load()) {}

  cudaError_t Load() {
    void* const library = LoadLibraryNamed(kCudaDriverName);
    if (library == nullptr) return cudaErrorInsufficientDriver;
      // A driver that lacks a function is too old for the others, too.
#define DSV4_FIND(name) \
  name##_ = reinterpret_cast<decltype(&::name)>(FunctionIn(library, DSV4_SYMBOL_OF(name)));
    DSV4_DRIVER_FUNCTIONS(DSV4_FIND)
#undef DSV4_FIND
    if (cuDriverGetVersion_ != nullptr) cuDriverGetVersion_(&version_);
    // Images run on drivers of their toolkit's major version and later ones.
    if (version_ / 1000 < CUDART_VERSION / 1000) return cudaErrorInsufficientDriver;
#define DSV4_CHECK(name) \
  if (name##_ == nullptr) return cudaErrorInsufficientDriver;
    DSV4_DRIVER_FUNCTIONS(DSV4_CHECK)
#undef DSV4_CHECK
    return static_cast<cudaError_t>(cuInit_(0));
  }

  int version_ = 0;
  cudaError_t error_;
};

thread_local cudaError_t last_error = cudaSuccess;

// Errors after which the context is of no more use: they stay the last error.
bool IsSticky(cudaError_t error) {
  switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
      return true;
    default:
      return false;
  }
}

cudaError_t Keep(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}
cudaError_t Keep(CUresult result) { return Keep(static_cast<cudaError_t>(result)); }

// Primary contexts, which stay until the process ends.
constexpr int kMostDevices = 64;
thread_local int device_of_thread = 0;  // where it has no context

// `make`: else null where nobody asked for it before.
cudaError_t PrimaryContext(const Driver& driver, int device, bool make, CUcontext* context) {
  static Mutex mutex;
  static std::array<CUcontext, kMostDevices> contexts ABSL_GUARDED_BY(mutex) = {};
  int count = 0;
  const CUresult counted = driver.cuDeviceGetCount_(&count);
  if (counted != CUDA_SUCCESS) return static_cast<cudaError_t>(counted);
  if (device < 0 || device >= std::min(count, kMostDevices)) return cudaErrorInvalidDevice;
  const MutexLock lock(&mutex);
  CUcontext& kept = contexts[static_cast<size_t>(device)];
  if (kept == nullptr && make) {
    CUdevice handle = 0;
    CUresult result = driver.cuDeviceGet_(&handle, device);
    if (result == CUDA_SUCCESS) result = driver.cuDevicePrimaryCtxRetain_(&kept, handle);
    if (result != CUDA_SUCCESS) return static_cast<cudaError_t>(result);
  }
  *context = kept;
  return cudaSuccess;
}

cudaError_t MakeCurrent(const Driver& driver, int device, bool make) {
  CUcontext context = nullptr;
  const cudaError_t error = PrimaryContext(driver, device, make, &context);
  if (error != cudaSuccess) return error;
  return static_cast<cudaError_t>(driver.cuCtxSetCurrent_(context));
}

// Calls f(driver) and keeps its error.
template <class F>
cudaError_t WithDriver(F&& f) {
  const Driver& driver = Driver::Get();
  return driver.error() == cudaSuccess ? Keep(f(driver)) : Keep(driver.error());
}

// The same in a context of the thread.
template <class F>
cudaError_t InContext(F&& f) {
  return WithDriver([&](const Driver& driver) {
    CUcontext context = nullptr;
    CUresult result = driver.cuCtxGetCurrent_(&context);
    if (result == CUDA_SUCCESS && context == nullptr) {
      result = static_cast<CUresult>(MakeCurrent(driver, device_of_thread, true));
    }
    return result == CUDA_SUCCESS ? f(driver) : result;
  });
}

CUdeviceptr AddressOf(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

// With the first kernel all images are loaded, which takes memory of the device: later launches
// take none.
CUresult FindFunction(const Driver& driver, KernelImage::Kernel* kernel, CUkernel* function) {
  static Mutex mutex;
  const MutexLock lock(&mutex);
  if (kernel->image->library == nullptr) {
    for (KernelImage* image = KernelImages(); image != nullptr; image = image->next) {
      if (image->library != nullptr) continue;
      CUlibrary library = nullptr;
      const CUresult result = driver.cuLibraryLoadData_(&library, image->data, nullptr, nullptr, 0,
                                                        nullptr, nullptr, 0);
      if (result != CUDA_SUCCESS) return result;
      image->library = library;
    }
  }
  const CUresult result = driver.cuLibraryGetKernel_(
      function, static_cast<CUlibrary>(kernel->image->library), kernel->symbol);
  if (result == CUDA_SUCCESS) kernel->function.store(*function, std::memory_order_release);
  return result;
}

// `kernel`: what KernelImage::Find returned.
CUresult FunctionOf(const Driver& driver, const void* kernel, CUkernel* function) {
  if (kernel == nullptr) return static_cast<CUresult>(cudaErrorInvalidDeviceFunction);
  auto* const known = static_cast<KernelImage::Kernel*>(const_cast<void*>(kernel));
  *function = static_cast<CUkernel>(known->function.load(std::memory_order_acquire));
  if (*function != nullptr) return CUDA_SUCCESS;
  // A stream may be captured meanwhile, which code that is loaded is no part of.
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  driver.cuThreadExchangeStreamCaptureMode_(&mode);
  const CUresult result = FindFunction(driver, known, function);
  driver.cuThreadExchangeStreamCaptureMode_(&mode);
  return result;
}

// Of errors that the runtime alone has, and of those without a driver to ask.
struct ErrorText {
  cudaError_t error;
  const char *name, *text;
};
constexpr ErrorText kErrorTexts[] = {
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "the NVIDIA driver is missing or too old"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction",
     "the image has no such kernel"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
};

}  // namespace
}  // namespace dsv4

using namespace dsv4;  // NOLINT: below are C's functions

extern "C" {

// Devices and contexts.

cudaError_t cudaDriverGetVersion(int* version) {
  *version = Driver::Get().version();
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  return WithDriver([&](const Driver& driver) {
    const CUresult result = driver.cuDeviceGetCount_(count);
    return result == CUDA_SUCCESS && *count == 0 ? CUDA_ERROR_NO_DEVICE : result;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return WithDriver([&](const Driver& driver) {
    CUcontext context = nullptr;
    const CUresult result = driver.cuCtxGetCurrent_(&context);
    *device = device_of_thread;
    return result == CUDA_SUCCESS && context != nullptr ? driver.cuCtxGetDevice_(device) : result;
  });
}

// A device of which nothing is asked gets no context, which would take some hundred megabytes.
cudaError_t cudaSetDevice(int device) {
  return WithDriver([&](const Driver& driver) {
    const cudaError_t error = MakeCurrent(driver, device, false);
    if (error == cudaSuccess) device_of_thread = device;
    return error;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return WithDriver([&](const Driver& driver) {
    return driver.cuDeviceGetAttribute_(value, static_cast<CUdevice_attribute>(attribute), device);
  });
}

// Those that this library asks for; the others are zeros.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  *properties = {};
  return WithDriver([&](const Driver& driver) {
    int shared_bytes = 0;
    const std::pair<CUdevice_attribute, int*> attributes[] = {
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &properties->major},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &properties->minor},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &properties->multiProcessorCount},
        {CU_DEVICE_ATTRIBUTE_INTEGRATED, &properties->integrated},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &shared_bytes}};
    CUresult result = driver.cuDeviceGetName_(properties->name,
                                              static_cast<int>(sizeof properties->name), device);
    if (result == CUDA_SUCCESS) {
      result = driver.cuDeviceTotalMem_(&properties->totalGlobalMem, device);
    }
    for (const auto& [attribute, value] : attributes) {
      if (result == CUDA_SUCCESS) result = driver.cuDeviceGetAttribute_(value, attribute, device);
    }
    properties->sharedMemPerBlockOptin = static_cast<size_t>(shared_bytes);
    return result;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int size, int device) {
  return WithDriver(
      [&](const Driver& driver) { return driver.cuDeviceGetPCIBusId_(id, size, device); });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return WithDriver(
      [&](const Driver& driver) { return driver.cuDeviceCanAccessPeer_(can, device, peer); });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return InContext([&](const Driver& driver) {
    CUcontext context = nullptr;
    const auto result = static_cast<CUresult>(PrimaryContext(driver, peer, true, &context));
    return result == CUDA_SUCCESS ? driver.cuCtxEnablePeerAccess_(context, flags) : result;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return InContext([](const Driver& driver) { return driver.cuCtxSynchronize_(); });
}

// Memory.

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return InContext([&](const Driver& driver) { return driver.cuMemGetInfo_(free, total); });
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  return InContext([&](const Driver& driver) {
    CUdeviceptr address = 0;
    const CUresult result = driver.cuMemAlloc_(&address, bytes);
    *memory = reinterpret_cast<void*>(address);
    return result;
  });
}

cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  return InContext([&](const Driver& driver) { return driver.cuMemFree_(AddressOf(memory)); });
}

cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned flags) {
  return InContext([&](const Driver& driver) {
    return driver.cuMemHostAlloc_(memory, bytes, flags | CU_MEMHOSTALLOC_PORTABLE);
  });
}

cudaError_t cudaFreeHost(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  return InContext([&](const Driver& driver) { return driver.cuMemFreeHost_(memory); });
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return InContext([&](const Driver& driver) {
    return driver.cuMemsetD8_(AddressOf(to), static_cast<unsigned char>(value), bytes);
  });
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return InContext([&](const Driver& driver) {
    return driver.cuMemsetD8Async_(AddressOf(to), static_cast<unsigned char>(value), bytes, stream);
  });
}

// The driver knows from addresses what is where.
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  return InContext([&](const Driver& driver) {
    return driver.cuMemcpy_(AddressOf(to), AddressOf(from), bytes);
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return InContext([&](const Driver& driver) {
    switch (kind) {
      case cudaMemcpyHostToDevice:
        return driver.cuMemcpyHtoDAsync_(AddressOf(to), from, bytes, stream);
      case cudaMemcpyDeviceToHost:
        return driver.cuMemcpyDtoHAsync_(to, AddressOf(from), bytes, stream);
      case cudaMemcpyDeviceToDevice:
        return driver.cuMemcpyDtoDAsync_(AddressOf(to), AddressOf(from), bytes, stream);
      default:
        return driver.cuMemcpyAsync_(AddressOf(to), AddressOf(from), bytes, stream);
    }
  });
}

// Streams, events and graphs.

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return InContext([&](const Driver& driver) { return driver.cuStreamCreate_(stream, flags); });
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return InContext([&](const Driver& driver) { return driver.cuStreamDestroy_(stream); });
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return InContext([&](const Driver& driver) { return driver.cuStreamSynchronize_(stream); });
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return InContext([&](const Driver& driver) { return driver.cuStreamQuery_(stream); });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return InContext(
      [&](const Driver& driver) { return driver.cuStreamWaitEvent_(stream, event, flags); });
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return InContext([&](const Driver& driver) {
    return driver.cuStreamBeginCapture_(stream, static_cast<CUstreamCaptureMode>(mode));
  });
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return InContext([&](const Driver& driver) { return driver.cuStreamEndCapture_(stream, graph); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return InContext([&](const Driver& driver) { return driver.cuEventCreate_(event, flags); });
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return InContext([&](const Driver& driver) { return driver.cuEventDestroy_(event); });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return InContext([&](const Driver& driver) { return driver.cuEventRecord_(event, stream); });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return InContext([&](const Driver& driver) { return driver.cuEventQuery_(event); });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return InContext([&](const Driver& driver) { return driver.cuEventSynchronize_(event); });
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  return InContext(
      [&](const Driver& driver) { return driver.cuEventElapsedTime_(milliseconds, begin, end); });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph,
                                 unsigned long long flags) {  // NOLINT: CUDA's type
  return InContext([&](const Driver& driver) {
    return driver.cuGraphInstantiateWithFlags_(made, graph, flags);
  });
}
cudaError_t cudaGraphUpload(cudaGraphExec_t graph, cudaStream_t stream) {
  return InContext([&](const Driver& driver) { return driver.cuGraphUpload_(graph, stream); });
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  return InContext([&](const Driver& driver) { return driver.cuGraphLaunch_(graph, stream); });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return InContext([&](const Driver& driver) { return driver.cuGraphDestroy_(graph); });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  return InContext([&](const Driver& driver) { return driver.cuGraphExecDestroy_(graph); });
}

// Kernels: `kernel` is a KernelImage::Kernel.

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  return InContext([&](const Driver& driver) {
    CUkernel function = nullptr;
    CUdevice device = 0;
    CUresult result = FunctionOf(driver, kernel, &function);
    if (result == CUDA_SUCCESS) result = driver.cuCtxGetDevice_(&device);
    if (result != CUDA_SUCCESS) return result;
    return driver.cuKernelSetAttribute_(static_cast<CUfunction_attribute>(attribute), value,
                                        function, device);
  });
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel,
                                void** arguments) {
  return InContext([&](const Driver& driver) {
    CUkernel function = nullptr;
    const CUresult result = FunctionOf(driver, kernel, &function);
    if (result != CUDA_SUCCESS) return result;
    static_assert(sizeof(CUlaunchAttribute) == sizeof(cudaLaunchAttribute));
    CUlaunchConfig launch{};
    launch.gridDimX = config->gridDim.x;
    launch.gridDimY = config->gridDim.y;
    launch.gridDimZ = config->gridDim.z;
    launch.blockDimX = config->blockDim.x;
    launch.blockDimY = config->blockDim.y;
    launch.blockDimZ = config->blockDim.z;
    launch.sharedMemBytes = static_cast<unsigned>(config->dynamicSmemBytes);
    launch.hStream = config->stream;
    launch.attrs = reinterpret_cast<CUlaunchAttribute*>(config->attrs);
    launch.numAttrs = config->numAttrs;
    // A CUkernel stands for the function of the current context.
    return driver.cuLaunchKernelEx_(&launch, reinterpret_cast<CUfunction>(function), arguments,
                                    nullptr);
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return InContext(
      [&](const Driver& driver) { return driver.cuLaunchHostFunc_(stream, function, data); });
}

// Errors.

cudaError_t cudaPeekAtLastError() { return last_error; }

cudaError_t cudaGetLastError() {
  const cudaError_t last = last_error;
  if (!IsSticky(last)) last_error = cudaSuccess;
  return last;
}

const char* cudaGetErrorName(cudaError_t error) {
  for (const ErrorText& each : kErrorTexts) {
    if (each.error == error) return each.name;
  }
  const Driver& driver = Driver::Get();
  const char* name = nullptr;
  if (driver.cuGetErrorName_ != nullptr) {
    driver.cuGetErrorName_(static_cast<CUresult>(error), &name);
  }
  return name == nullptr ? "unrecognized error code" : name;
}

const char* cudaGetErrorString(cudaError_t error) {
  for (const ErrorText& each : kErrorTexts) {
    if (each.error == error) return each.text;
  }
  const Driver& driver = Driver::Get();
  const char* text = nullptr;
  if (driver.cuGetErrorString_ != nullptr) {
    driver.cuGetErrorString_(static_cast<CUresult>(error), &text);
  }
  return text == nullptr ? "unrecognized error code" : text;
}

}  // extern "C"
