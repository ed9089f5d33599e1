// SPDX-License-Identifier: Apache-2.0
// The tensors of a launch as floats in host memory, wherever its device stores them and in whatever
// format. For verification.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/op/host_rows.h"
#include "kernels/op/launch_tensors.h"
#include "lib/device/device.h"

namespace dsv4 {

// Reads and writes launch tensors in a backend's memory. Waits for the device. Errors: DeviceLost.
class LaunchMemory {
 public:
  // `rows`: how the backend stores them.
  LaunchMemory(Device* device, const HostRows& rows) : device_(device), rows_(rows) {}
  Device& device() const { return *device_; }
  absl::StatusOr<std::vector<float>> Read(const LaunchTensor& tensor) const;
  // REQUIRES: the tensor's format holds the values.
  absl::Status Write(const LaunchTensor& tensor, std::vector<float> values) const;

 private:
  int64_t ElementBytes(const LaunchTensor& tensor) const;
  bool StoresCodes(const LaunchTensor& tensor) const;
  // What is stored of a row, and where it begins.
  int64_t RowBytes(const LaunchTensor& tensor) const;
  std::byte* RowOf(const LaunchTensor& tensor, int64_t row) const;

  Device* device_;
  HostRows rows_;
};

}  // namespace dsv4
