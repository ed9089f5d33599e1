// SPDX-License-Identifier: Apache-2.0
#include "tests/capi/device_fault.h"

#include <cstdint>

namespace {

__global__ void write_to(uintptr_t address) { *reinterpret_cast<volatile int*>(address) = 1; }

}  // namespace

int has_device(void) {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

size_t free_device_bytes(void) {
  size_t free = 0, total = 0;
  return cudaMemGetInfo(&free, &total) == cudaSuccess ? free : 0;
}

void* take_device_memory(size_t bytes) {
  void* memory = nullptr;
  if (cudaMalloc(&memory, bytes) == cudaSuccess) return memory;
  cudaGetLastError();
  return nullptr;
}

void give_back_device_memory(void* memory) { cudaFree(memory); }

void provoke_device_fault(void) {
  write_to<<<1, 1>>>(64);
  cudaDeviceSynchronize();
}
