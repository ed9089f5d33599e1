// SPDX-License-Identifier: Apache-2.0
#include "lib/device/device.h"

#include <sched.h>

#include <algorithm>
#include <chrono>

#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/device/cpu_device.h"
#ifdef DSV4_HAVE_CUDA
#include "lib/device/cuda_device.h"
#endif

namespace dsv4 {

int UsableCores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::clamp(CPU_COUNT(&set), 1, static_cast<int>(kMaxCpuThreads));
}

absl::Status Device::Check(const DeviceOptions& options) {
  if (options.kind == DeviceKind::kCuda) {
#ifdef DSV4_HAVE_CUDA
    return CudaDevice::Check(options.index);
#else
    return Unsupported("this build has no CUDA backend (DSV4_CUDA=OFF)");
#endif
  }
  if (options.index != 0)
    return InvalidArgument("device cpu:", options.index, ": the only cpu device is 0");
  if (options.threads < 0 || options.threads > kMaxCpuThreads) {
    return InvalidValue("threads", " ", options.threads, " is not in 0..", kMaxCpuThreads);
  }
  return absl::OkStatus();
}

absl::Status Device::Gather(std::byte* to, absl::Span<const MemoryPiece> from) {
  for (const MemoryPiece& piece : from) {
    DSV4_RETURN_IF_ERROR(Download(to, piece.data, piece.bytes));
    to += piece.bytes;
  }
  return absl::OkStatus();
}

absl::Status Device::StartCopies(absl::Span<const MemoryCopy> copies) {
  for (const MemoryCopy& copy : copies) {
    DSV4_RETURN_IF_ERROR(Copy(copy.to, copy.from, copy.bytes));
  }
  return absl::OkStatus();
}

absl::Status Device::StartLane(int, absl::Span<const MemoryCopy> copies) {
  return StartCopies(copies);
}

absl::Status Device::Scatter(absl::Span<const MemoryPiece> to, const std::byte* from) {
  for (const MemoryPiece& piece : to) {
    DSV4_RETURN_IF_ERROR(Upload(piece.data, from, piece.bytes));
    from += piece.bytes;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Device>> Device::Open(const DeviceOptions& options) {
  DSV4_RETURN_IF_ERROR(Check(options));
#ifdef DSV4_HAVE_CUDA
  if (options.kind == DeviceKind::kCuda) return CudaDevice::Open(options.index);
#endif
  const int threads = options.threads == 0 ? UsableCores() : options.threads;
  auto device = std::make_unique<CpuDevice>(threads);
  if (device->start_error() == 0) return device;
  return WithArgument(
      OutOfHostMemory("the system gives ", device->threads(), " of ", threads,
                      " threads (option threads): ", SystemReason(device->start_error())),
      "threads");
}

double Device::SecondsOf(absl::FunctionRef<void()> enqueue) {
  const auto start = std::chrono::steady_clock::now();
  enqueue();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace dsv4
