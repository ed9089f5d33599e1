// SPDX-License-Identifier: Apache-2.0
#include "lib/proof/list_devices.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/io/system_memory.h"
#include "lib/proof/device_proof.h"

namespace dsv4 {

std::vector<DeviceListing> ListDevices(const std::string& root) {
  const int64_t total = TotalMemory(root).value_or(0), free = AvailableMemory(root).value_or(0);
  std::vector<DeviceListing> devices = Device::ListGpus();
  for (DeviceListing& gpu : devices) {
    if (gpu.integrated) {
      gpu.total_bytes = TotalSystemMemory(root).value_or(0);
      gpu.free_bytes = AvailableSystemMemory(root).value_or(0);
    }
    if (gpu.reason.empty()) gpu.reason = ProofRefusal(gpu.index);
  }
  DeviceListing cpu{.kind = DeviceKind::kCpu, .total_bytes = total, .free_bytes = free};
  const absl::StatusOr<std::unique_ptr<Device>> opened = Device::Open({.threads = 1});
  if (opened.ok()) {
    cpu.name = (*opened)->name();
  } else {
    cpu.reason = std::string(opened.status().message());
  }
  devices.push_back(std::move(cpu));
  return devices;
}

}  // namespace dsv4
