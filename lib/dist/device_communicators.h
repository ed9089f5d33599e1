// SPDX-License-Identifier: Apache-2.0
// The communicators of ranks whose tensors lie in the memory of devices of one process. Two ways
// lead from one to another: a kernel of each rank reads the other ranks' slices, where the devices
// reach each other's memory, and NCCL, which finds a way between any two. Where both are there,
// short exchanges take the first and long ones the second, from the size on at which a measurement
// finds it faster. Which way an exchange takes changes no bit.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/registry/dispatch.h"
#include "lib/device/device.h"
#include "lib/dist/communicator.h"
#include "lib/dist/nccl_gather.h"

namespace dsv4 {

// kNone, for measurements alone: nothing is exchanged, and what is computed is garbage.
enum class ExchangePath : int32_t { kAuto, kDirect, kNccl, kNone };

// What an exchange takes on each device besides its tensors.
int64_t ExchangeDeviceBytes();

class ExchangeWays {
 public:
  virtual ~ExchangeWays() = default;
  // For the log, once all ranks have started: "by kernels up to 4194304 bytes, then by
  // NCCL 2.27.3".
  virtual std::string Describe() const = 0;
};

struct DeviceCommunicators {
  std::vector<std::unique_ptr<Communicator>> ranks;
  std::shared_ptr<const ExchangeWays> ways;
};

// Of a wait for another rank. Devices are equally fast; only delays of their host threads make one
// late.
inline constexpr std::chrono::seconds kDeviceLimit{4};

// REQUIRES: different devices, each with its dispatch; both outlive the communicators. Unsupported
// where `path` does not lead from every device to every other, with the reason; for kAuto, where
// neither does.
absl::StatusOr<DeviceCommunicators> ConnectDevices(absl::Span<const DeviceRank> ranks,
                                                   ExchangePath path,
                                                   std::chrono::milliseconds limit = kDeviceLimit);

}  // namespace dsv4
