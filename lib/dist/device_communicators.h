// SPDX-License-Identifier: Apache-2.0
// The communicators of ranks on devices of one process. There are three paths: kernels that use
// peer access; the same kernels with inboxes in pinned host memory, for any two devices; and NCCL.
// With NCCL, short exchanges use kernels and long ones NCCL; a measurement finds the size from
// which NCCL is faster. All paths give the same bits.
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
#include "lib/dist/nccl_call.h"
#include "lib/dist/nccl_gather.h"

namespace dsv4 {

// kNone, for measurements only: nothing is exchanged, and the outputs are undefined.
enum class ExchangePath : int32_t { kAuto, kDirect, kHost, kNccl, kNone };

// Memory of an exchange on each device, in addition to its tensors.
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

// The limit of a wait for another rank. Devices are equally fast; only delays of their host threads
// make a rank late.
inline constexpr std::chrono::seconds kDeviceLimit{4};

// Peer access counts only after each pair has written and read a pattern in the other's memory:
// drivers offer it where PCIe drops the writes. Without it kAuto goes through host memory, and does
// not ask NCCL if the driver offered what is lost: NCCL would wait for the same access. NCCL
// connects within `start_limit`, which its first exchanges have as well. REQUIRES: different
// devices, each with its dispatch; both outlive the communicators. Errors: Unsupported, with the
// reason, if `path` does not connect every device to every other; DeviceLost if kNccl was asked for
// and does not return: a thread then stays behind; OutOfHostMemory.
absl::StatusOr<DeviceCommunicators> ConnectDevices(
    absl::Span<const DeviceRank> ranks, ExchangePath path,
    std::chrono::milliseconds limit = kDeviceLimit,
    std::chrono::milliseconds start_limit = kNcclStartLimit);

}  // namespace dsv4
