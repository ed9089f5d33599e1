// SPDX-License-Identifier: Apache-2.0
// Device::Open and Device::Check: the one place that knows every kind of device.
#include <memory>
#include <string>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/device/cpu_device.h"
#include "lib/device/device.h"
#ifdef DSV4_HAVE_CUDA
#include "lib/device/cuda_device.h"
#include "lib/device/cuda_listing.h"
#include "lib/device/watched_thread.h"
#endif

namespace dsv4 {
#ifdef DSV4_HAVE_CUDA
namespace {

// DeviceLost while this process waits in vain for a call of the driver: the next one may not return
// either.
absl::Status DriverReturns() {
  if (DriverCallsLeft() == 0) return absl::OkStatus();
  return DeviceLost(
      "a call of the CUDA driver that this process has given up has not returned; only another "
      "process can use a GPU");
}

}  // namespace
#endif

absl::Status Device::Check(const DeviceOptions& options) {
  if (options.kind == DeviceKind::kCuda) {
#ifdef DSV4_HAVE_CUDA
    DSV4_RETURN_IF_ERROR(DriverReturns());
    return CudaDevice::Check(options.index);
#else
    return Unsupported(
        "this build has no CUDA backend: to use a GPU, install the CUDA toolkit 13 (with nvcc) and "
        "build dsv4 again, without DSV4_CUDA=OFF");
#endif
  }
  if (options.index != 0)
    return InvalidArgument("device cpu:", options.index, ": the only cpu device is 0");
  if (options.threads < 0 || options.threads > kMaxCpuThreads) {
    return InvalidValue("threads", " ", options.threads, " is not in 0..", kMaxCpuThreads);
  }
  return absl::OkStatus();
}

std::vector<DeviceListing> Device::ListGpus() {
#ifdef DSV4_HAVE_CUDA
  if (const absl::Status returns = DriverReturns(); !returns.ok()) {
    return {{.kind = DeviceKind::kCuda, .index = -1, .reason = std::string(returns.message())}};
  }
  return ListCudaDevices();
#else
  const absl::Status reason = Check({.kind = DeviceKind::kCuda});
  return {{.kind = DeviceKind::kCuda, .index = -1, .reason = std::string(reason.message())}};
#endif
}

absl::StatusOr<std::unique_ptr<Device>> Device::Open(const DeviceOptions& options) {
  DSV4_RETURN_IF_ERROR(Check(options));
#ifdef DSV4_HAVE_CUDA
  if (options.kind == DeviceKind::kCuda) {
    return CudaDevice::Open(options.index, options.pages_memory);
  }
#endif
  const int threads = options.threads == 0 ? UsableCores() : options.threads;
  auto device = std::make_unique<CpuDevice>(threads);
  if (device->start_error() == 0) return device;
  return WithArgument(OutOfHostMemory("only ", device->threads(), " of ", threads,
                                      " threads could be started (option threads): ",
                                      SystemReason(device->start_error())),
                      "threads");
}

}  // namespace dsv4
