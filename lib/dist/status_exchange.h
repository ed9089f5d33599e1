// SPDX-License-Identifier: Apache-2.0
// How all ranks come to know that something failed on one of them alone, where none has to end for
// it. Used by the thread that makes the rank's exchanges.
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

  // OK where all ranks came with OK, else the same status on all ranks: that of the lowest rank
  // that failed, whose number the message has before it on other ranks; what is beyond a kilobyte
  // of it is cut. Waits for the device. An exchange of another slice comes before the next call.
  // Where nothing is exchanged, `own`. Errors: the communicator's.
  absl::Status Exchange(Communicator* communicator, const absl::Status& own) const;

 private:
  Device* device_ = nullptr;
  std::byte* memory_ = nullptr;
};

}  // namespace dsv4
