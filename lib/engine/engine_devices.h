// SPDX-License-Identifier: Apache-2.0
// The devices of an engine's ranks in this process, and the kernels that each of them runs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/registry/dispatch.h"
#include "lib/device/device.h"
#include "lib/engine/engine_settings.h"

namespace dsv4 {

class EngineDevices {
 public:
  // Ranks on the CPU share its threads. Errors: those of Device::Check and Device::Open;
  // Unsupported for GPUs of several architectures.
  static absl::StatusOr<EngineDevices> Open(const EngineSettings& settings);

  // This process has the ranks [first_rank, first_rank + size()).
  bool IsHere(int rank) const {
    return rank >= first_rank_ && rank < first_rank_ + static_cast<int>(devices_.size());
  }
  // The device of a rank, and its kernels. For ranks of other processes: a device of this process
  // of the same kind.
  Device& device(int rank) const { return *devices_[IndexOf(rank)]; }
  Dispatch& dispatch(int rank) const { return *dispatches_[IndexOf(rank)]; }
  // The number of devices of this process.
  size_t size() const { return devices_.size(); }
  std::vector<Device*> pointers() const;
  Device& front() const { return *devices_.front(); }
  Dispatch& front_dispatch() const { return *dispatches_.front(); }
  // The operators, as OpName has them, whose kernels are of the second set only; of those that
  // the engine has planned.
  std::vector<std::string> second_set_operators() const;
  // Worker threads of all devices.
  int threads() const;

 private:
  EngineDevices() = default;
  absl::Status OpenRanks(const EngineSettings& settings);
  absl::Status ChooseKernels(const EngineSettings& settings);
  size_t IndexOf(int rank) const {
    return IsHere(rank) ? static_cast<size_t>(rank - first_rank_) : 0;
  }

  int first_rank_ = 0;
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<std::unique_ptr<Dispatch>> dispatches_;
};

}  // namespace dsv4
