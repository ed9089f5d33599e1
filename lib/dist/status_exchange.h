// SPDX-License-Identifier: Apache-2.0
// Tells all ranks that an operation failed on one of them, for failures that the engine survives.
// Used by the thread that makes the rank's exchanges.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "lib/device/device.h"
#include "lib/dist/communicator.h"

namespace dsv4 {

class StatusExchange {
 public:
  static int64_t DeviceBytes(int ranks);

  StatusExchange() = default;
  // `memory`: of the device, of DeviceBytes; it outlives the exchange.
  StatusExchange(Device* device, std::byte* memory) : device_(device), memory_(memory) {}

  // Returns OK if `own` is OK on all ranks. Otherwise returns the status of the lowest rank that
  // failed, on all ranks. On the other ranks the message begins with that rank's number. It is cut
  // after a kilobyte. Waits for the device. Without an exchange (ExchangePath::kNone) returns
  // `own`. REQUIRES: another exchange between two calls. Errors: the communicator's.
  absl::Status Exchange(Communicator* communicator, const absl::Status& own) const;

 private:
  Device* device_ = nullptr;
  std::byte* memory_ = nullptr;
};

}  // namespace dsv4
