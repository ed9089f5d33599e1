// SPDX-License-Identifier: Apache-2.0
#include "lib/device/cuda_listing.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "lib/base/loaded_library.h"
#include "lib/device/cuda_device.h"
#include "lib/device/cuda_runtime.h"

namespace dsv4 {
namespace {

struct Memory {
  int64_t total = 0, free = 0;
};

// A GPU's memory from NVIDIA's management library (NVML). CUDA tells it only in a context, which
// takes some hundred megabytes of each GPU that is looked at.
class Nvml {
 public:
  Nvml() {
    void* const library = LoadLibraryNamed(kNvmlName);
    if (library == nullptr) return;
    const auto init = reinterpret_cast<int (*)()>(FunctionIn(library, "nvmlInit_v2"));
    by_bus_id_ = reinterpret_cast<ByBusId>(FunctionIn(library, "nvmlDeviceGetHandleByPciBusId_v2"));
    memory_ = reinterpret_cast<GetMemory>(FunctionIn(library, "nvmlDeviceGetMemoryInfo"));
    usable_ = init != nullptr && by_bus_id_ != nullptr && memory_ != nullptr && init() == 0;
  }

  std::optional<Memory> MemoryOf(const char* bus_id) const {
    void* device = nullptr;
    unsigned long long bytes[3] = {};  // NOLINT: NVML's type; total, free, used
    if (!usable_ || by_bus_id_(bus_id, &device) != 0 || memory_(device, bytes) != 0) {
      return std::nullopt;
    }
    return Memory{static_cast<int64_t>(bytes[0]), static_cast<int64_t>(bytes[1])};
  }

 private:
  using ByBusId = int (*)(const char*, void**);
  using GetMemory = int (*)(void*, unsigned long long*);  // NOLINT: NVML's type

  bool usable_ = false;
  ByBusId by_bus_id_ = nullptr;
  GetMemory memory_ = nullptr;
};

// In a context of the GPU.
std::optional<Memory> MemoryByCuda(int index) {
  int before = 0;
  cudaGetDevice(&before);
  size_t free = 0, total = 0;
  cudaError_t result = cudaSetDevice(index);
  if (result == cudaSuccess) result = cudaMemGetInfo(&free, &total);
  cudaSetDevice(before);
  if (result != cudaSuccess) {
    cudaGetLastError();  // not a fault of a later call
    return std::nullopt;
  }
  return Memory{static_cast<int64_t>(total), static_cast<int64_t>(free)};
}

Memory MemoryOf(int index, int64_t total) {
  static const Nvml nvml;
  char bus_id[32] = {};
  std::optional<Memory> memory;
  if (cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, index) == cudaSuccess) {
    memory = nvml.MemoryOf(bus_id);
  }
  if (!memory) memory = MemoryByCuda(index);
  return memory.value_or(Memory{.total = total});
}

DeviceListing Listing(int index) {
  DeviceListing listing{.kind = DeviceKind::kCuda, .index = index};
  const absl::Status check = CudaDevice::Check(index);
  if (!check.ok()) listing.reason = std::string(check.message());
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, index) != cudaSuccess) {
    cudaGetLastError();
    return listing;
  }
  listing.name = properties.name;
  listing.compute_capability = properties.major * 10 + properties.minor;
  listing.integrated = properties.integrated != 0;
  int mode = cudaComputeModeDefault;
  if (cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, index) == cudaSuccess &&
      mode == cudaComputeModeProhibited && listing.reason.empty()) {
    listing.reason = absl::StrCat("cuda:", index, " (", properties.name,
                                  ") has the compute mode \"prohibited\" (nvidia-smi -c)");
  }
  if (listing.integrated || !listing.reason.empty()) {
    listing.total_bytes = static_cast<int64_t>(properties.totalGlobalMem);
    return listing;
  }
  const Memory memory = MemoryOf(index, static_cast<int64_t>(properties.totalGlobalMem));
  listing.total_bytes = memory.total;
  listing.free_bytes = memory.free;
  return listing;
}

}  // namespace

std::vector<DeviceListing> ListCudaDevices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    cudaGetLastError();
    return {{.kind = DeviceKind::kCuda,
             .index = -1,
             .reason = std::string(CudaDevice::Check(0).message())}};
  }
  std::vector<DeviceListing> gpus;
  for (int index = 0; index < count; ++index) gpus.push_back(Listing(index));
  return gpus;
}

}  // namespace dsv4
