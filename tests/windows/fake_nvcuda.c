/* SPDX-License-Identifier: Apache-2.0 */
/* nvcuda.dll without a GPU, for Wine: one device of compute capability 12.0 with 2 GiB, whose
 * memory is the host's. Copies copy, at once; kernels do nothing, but must be in the image that
 * they are asked of, by their name. When the program ends, the file that DSV4_FAKE_NVCUDA names has
 * how many kernels were found and how many were launched. */
#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>

enum { kMostKernels = 4096, kMostLibraries = 256 };

static const size_t kDeviceBytes = (size_t)2 << 30;
static SRWLOCK lock = SRWLOCK_INIT;
static struct Kernel {
  char name[512];
  LONG launches;
} kernels[kMostKernels];
static int kernel_count;
static struct Library {
  const char* image;
  size_t bytes;
} libraries[kMostLibraries];
static int library_count;
static size_t used;
static int something; /* what handles point to */
static __thread int current = 0;

#define HANDLE_OF(type) ((type)(void*)&something)
#define OK(call) \
  CUresult CUDAAPI call { return CUDA_SUCCESS; }

CUresult CUDAAPI cuDriverGetVersion(int* version) { return *version = CUDA_VERSION, CUDA_SUCCESS; }
OK(cuInit(unsigned flags))
CUresult CUDAAPI cuGetErrorName(CUresult error, const char** name) {
  return *name = "CUDA_ERROR", CUDA_SUCCESS;
}
CUresult CUDAAPI cuGetErrorString(CUresult error, const char** text) {
  return *text = "an error", CUDA_SUCCESS;
}
CUresult CUDAAPI cuDeviceGet(CUdevice* device, int index) { return *device = index, CUDA_SUCCESS; }
CUresult CUDAAPI cuDeviceGetCount(int* count) { return *count = 1, CUDA_SUCCESS; }
CUresult CUDAAPI cuDeviceGetName(char* name, int bytes, CUdevice device) {
  return snprintf(name, (size_t)bytes, "Fake GPU"), CUDA_SUCCESS;
}
CUresult CUDAAPI cuDeviceGetPCIBusId(char* name, int bytes, CUdevice device) {
  return snprintf(name, (size_t)bytes, "0000:01:00.0"), CUDA_SUCCESS;
}
CUresult CUDAAPI cuDeviceTotalMem(size_t* bytes, CUdevice device) {
  return *bytes = kDeviceBytes, CUDA_SUCCESS;
}
CUresult CUDAAPI cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  return *can = 0, CUDA_SUCCESS;
}
CUresult CUDAAPI cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = 12;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = 0;
      break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = 170;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      *value = 99 * 1024;
      break;
    case CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT:
      *value = 1;
      break;
    default:
      *value = 0;
  }
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return *context = HANDLE_OF(CUcontext), CUDA_SUCCESS;
}
CUresult CUDAAPI cuCtxSetCurrent(CUcontext context) {
  return current = context != NULL, CUDA_SUCCESS;
}
CUresult CUDAAPI cuCtxGetCurrent(CUcontext* context) {
  return *context = current ? HANDLE_OF(CUcontext) : NULL, CUDA_SUCCESS;
}
CUresult CUDAAPI cuCtxGetDevice(CUdevice* device) { return *device = 0, CUDA_SUCCESS; }
OK(cuCtxSynchronize(void))
OK(cuCtxEnablePeerAccess(CUcontext context, unsigned flags))

/* Memory: the size stands before it. */
static void* allocate(size_t bytes) {
  char* const memory = VirtualAlloc(NULL, bytes + 4096, MEM_COMMIT | MEM_RESERVE, PAGE_READWRITE);
  if (memory == NULL) return NULL;
  *(size_t*)memory = bytes;
  return memory + 4096;
}
CUresult CUDAAPI cuMemGetInfo(size_t* free_bytes, size_t* total) {
  *total = kDeviceBytes;
  *free_bytes = kDeviceBytes - used;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemAlloc(CUdeviceptr* memory, size_t bytes) {
  void* const at = used + bytes <= kDeviceBytes ? allocate(bytes) : NULL;
  if (at == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  used += bytes;
  return *memory = (CUdeviceptr)at, CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemFree(CUdeviceptr memory) {
  char* const begin = (char*)memory - 4096;
  used -= *(size_t*)begin;
  return VirtualFree(begin, 0, MEM_RELEASE), CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemHostAlloc(void** memory, size_t bytes, unsigned flags) {
  return (*memory = allocate(bytes)) != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult CUDAAPI cuMemFreeHost(void* memory) {
  return VirtualFree((char*)memory - 4096, 0, MEM_RELEASE), CUDA_SUCCESS;
}
static CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return memmove((void*)to, (const void*)from, bytes), CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return copy(to, from, bytes);
}
CUresult CUDAAPI cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy(to, from, bytes);
}
CUresult CUDAAPI cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes,
                                   CUstream stream) {
  return copy(to, (CUdeviceptr)from, bytes);
}
CUresult CUDAAPI cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy((CUdeviceptr)to, from, bytes);
}
CUresult CUDAAPI cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                   CUstream stream) {
  return copy(to, from, bytes);
}
CUresult CUDAAPI cuMemsetD8(CUdeviceptr to, unsigned char value, size_t bytes) {
  return memset((void*)to, value, bytes), CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes,
                                 CUstream stream) {
  return memset((void*)to, value, bytes), CUDA_SUCCESS;
}

/* Streams, events, graphs: all is over when it is asked for. */
CUresult CUDAAPI cuStreamCreate(CUstream* stream, unsigned flags) {
  return *stream = HANDLE_OF(CUstream), CUDA_SUCCESS;
}
OK(cuStreamDestroy(CUstream stream))
OK(cuStreamSynchronize(CUstream stream))
OK(cuStreamQuery(CUstream stream))
OK(cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags))
OK(cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode))
CUresult CUDAAPI cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  return *graph = HANDLE_OF(CUgraph), CUDA_SUCCESS;
}
OK(cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode))
CUresult CUDAAPI cuEventCreate(CUevent* event, unsigned flags) {
  return *event = HANDLE_OF(CUevent), CUDA_SUCCESS;
}
OK(cuEventDestroy(CUevent event))
OK(cuEventRecord(CUevent event, CUstream stream))
OK(cuEventQuery(CUevent event))
OK(cuEventSynchronize(CUevent event))
CUresult CUDAAPI cuEventElapsedTime(float* milliseconds, CUevent begin, CUevent end) {
  return *milliseconds = 0.1f, CUDA_SUCCESS;
}
CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec* made, CUgraph graph,
                                             unsigned long long flags) {
  return *made = HANDLE_OF(CUgraphExec), CUDA_SUCCESS;
}
OK(cuGraphUpload(CUgraphExec graph, CUstream stream))
OK(cuGraphLaunch(CUgraphExec graph, CUstream stream))
OK(cuGraphDestroy(CUgraph graph))
OK(cuGraphExecDestroy(CUgraphExec graph))
CUresult CUDAAPI cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  return function(data), CUDA_SUCCESS;
}

/* Kernels. */
CUresult CUDAAPI cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jit,
                                   void** jit_values, unsigned jit_count, CUlibraryOption* options,
                                   void** values, unsigned count) {
  /* A fat binary: a magic number, a version, and the sizes of this head and of what follows. */
  const struct {
    uint32_t magic;
    uint16_t version, head;
    uint64_t bytes;
  }* const fat = code;
  if (fat->magic != 0xBA55ED50) return CUDA_ERROR_INVALID_IMAGE;
  AcquireSRWLockExclusive(&lock);
  struct Library* const made = library_count < kMostLibraries ? &libraries[library_count++] : NULL;
  if (made != NULL) *made = (struct Library){code, fat->head + fat->bytes};
  ReleaseSRWLockExclusive(&lock);
  return *library = (CUlibrary)(void*)made, made == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}
static int has_section(const struct Library* in, const char* name) {
  char section[600];
  const size_t size = (size_t)snprintf(section, sizeof section, ".text.%s", name) + 1;
  for (size_t i = 0; i + size <= in->bytes; ++i) {
    const char* const found = memchr(in->image + i, '.', in->bytes - size - i + 1);
    if (found == NULL) return 0;
    if (memcmp(found, section, size) == 0) return 1;
    i = (size_t)(found - in->image);
  }
  return 0;
}
CUresult CUDAAPI cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  if (!has_section((const struct Library*)(void*)library, name)) return CUDA_ERROR_NOT_FOUND;
  AcquireSRWLockExclusive(&lock);
  struct Kernel* const made = kernel_count < kMostKernels ? &kernels[kernel_count++] : NULL;
  if (made != NULL) snprintf(made->name, sizeof made->name, "%s", name);
  ReleaseSRWLockExclusive(&lock);
  return *kernel = (CUkernel)(void*)made, made == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}
OK(cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel,
                        CUdevice device))
CUresult CUDAAPI cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function,
                                  void** parameters, void** extra) {
  struct Kernel* const kernel = (struct Kernel*)(void*)function;
  if (kernel < kernels || kernel >= kernels + kernel_count) return CUDA_ERROR_INVALID_HANDLE;
  return InterlockedIncrement(&kernel->launches), CUDA_SUCCESS;
}

BOOL WINAPI DllMain(HINSTANCE library, DWORD reason, void* reserved) {
  const char* const path = getenv("DSV4_FAKE_NVCUDA");
  FILE* const file = reason == DLL_PROCESS_DETACH && path != NULL ? fopen(path, "w") : NULL;
  if (file != NULL) {
    int launched = 0;
    for (int i = 0; i < kernel_count; ++i) launched += kernels[i].launches > 0;
    fprintf(file, "found %d launched %d\n", kernel_count, launched);
    fclose(file);
  }
  return TRUE;
}
