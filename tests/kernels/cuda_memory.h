// SPDX-License-Identifier: Apache-2.0
// Device memory for kernel tests: copies of host arrays with guards around them, by the CUDA
// runtime alone. Every failure of the runtime fails the running test.
#pragma once

#include "lib/device/cuda_runtime.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/catch.h"

namespace dsv4::test {

inline int32_t CudaMultiprocessors() {
  int count = 0;
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0);
  return count;
}

#define REQUIRE_CUDA(expression)                                 \
  do {                                                           \
    const cudaError_t cuda_error = (expression);                 \
    INFO(#expression << ": " << cudaGetErrorString(cuda_error)); \
    REQUIRE(cuda_error == cudaSuccess);                          \
  } while (false)

// Whether the GPU is that of tests/emulation.
inline bool EmulatedGpu() {
  cudaDeviceProp properties{};
  REQUIRE_CUDA(cudaGetDeviceProperties(&properties, 0));
  return std::string_view(properties.name) == "emulated";
}

inline constexpr unsigned char kCudaPoison = 0xfd;

// `count` elements on the device, 256-byte aligned, between two guards of kGuardBytes. Transfers
// wait for everything that was enqueued before them.
template <class T>
class DeviceCopy {
 public:
  // Poisoned memory.
  explicit DeviceCopy(int64_t count) : count_(count) {
    const size_t bytes = total_bytes();
    REQUIRE_CUDA(cudaMalloc(reinterpret_cast<void**>(&memory_), bytes));
    REQUIRE_CUDA(cudaMemset(memory_, kCudaPoison, bytes));
    REQUIRE_CUDA(cudaDeviceSynchronize());
  }
  explicit DeviceCopy(const std::vector<T>& host) : DeviceCopy(static_cast<int64_t>(host.size())) {
    Upload(host);
  }
  DeviceCopy(DeviceCopy&& other) noexcept
      : count_(other.count_), memory_(std::exchange(other.memory_, nullptr)) {}
  DeviceCopy& operator=(DeviceCopy&&) = delete;
  ~DeviceCopy() {
    if (memory_ != nullptr) cudaFree(memory_);
  }

  T* data() const { return reinterpret_cast<T*>(memory_ + kGuardBytes); }
  int64_t size() const { return count_; }

  void Upload(const std::vector<T>& host) {
    Upload(host.data(), static_cast<int64_t>(host.size()));
  }
  // The first `count` elements.
  void Upload(const T* host, int64_t count) {
    REQUIRE(count <= count_);
    if (count == 0) return;
    REQUIRE_CUDA(cudaDeviceSynchronize());
    REQUIRE_CUDA(
        cudaMemcpy(data(), host, static_cast<size_t>(count) * sizeof(T), cudaMemcpyHostToDevice));
  }
  std::vector<T> Download() const {
    std::vector<T> host(static_cast<size_t>(count_));
    REQUIRE_CUDA(cudaDeviceSynchronize());
    if (count_ > 0) {
      REQUIRE_CUDA(
          cudaMemcpy(host.data(), data(), host.size() * sizeof(T), cudaMemcpyDeviceToHost));
    }
    return host;
  }

  // Whether the guards are as they were.
  bool Intact() const {
    std::vector<unsigned char> all(total_bytes());
    REQUIRE_CUDA(cudaDeviceSynchronize());
    REQUIRE_CUDA(cudaMemcpy(all.data(), memory_, all.size(), cudaMemcpyDeviceToHost));
    const auto same = [](unsigned char b) { return b == kCudaPoison; };
    return std::all_of(all.begin(), all.begin() + kGuardBytes, same) &&
           std::all_of(all.begin() + kGuardBytes + count_ * static_cast<int64_t>(sizeof(T)),
                       all.end(), same);
  }

 private:
  static constexpr int64_t kGuardBytes = 256;
  size_t total_bytes() const {
    return static_cast<size_t>(count_) * sizeof(T) + 2 * static_cast<size_t>(kGuardBytes);
  }

  int64_t count_;
  unsigned char* memory_ = nullptr;
};

}  // namespace dsv4::test
