// SPDX-License-Identifier: Apache-2.0
// Where the time of steps goes, by operator: every launch is run alone and timed on its device.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/registry/dispatch.h"
#include "lib/device/device.h"

namespace dsv4 {

// Adds up what was launched while it is an engine's recorder.
class OperatorTimes final : public LaunchRecorder {
 public:
  struct Row {
    int64_t calls = 0;
    Cost cost;
    double seconds = 0;
  };

  // `device` must outlive it.
  explicit OperatorTimes(Device* device) : device_(device) {}
  void Record(const KernelEntry& entry, const void* params, const Cost& cost,
              absl::FunctionRef<void()> launch) override;

  const Row& all() const { return all_; }
  // To stdout, per step of `steps`: a line for each operator that ran, longest first.
  void Print(int64_t steps) const;

 private:
  Device* device_;
  std::array<Row, static_cast<size_t>(Op::kCount)> rows_{};
  Row all_;
};

}  // namespace dsv4
