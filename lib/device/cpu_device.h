// SPDX-License-Identifier: Apache-2.0
// The cpu device: host memory, and a stream with worker threads.
#pragma once

#include "lib/device/device.h"

namespace dsv4 {

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int threads) : stream_(threads) {}
  std::string name() const override;
  Stream& stream() override { return stream_; }
  int threads() const override { return stream_.threads(); }
  absl::StatusOr<Buffer> Allocate(int64_t bytes, absl::string_view purpose) override {
    return Buffer::AllocateHost(bytes, purpose);
  }

 private:
  CpuStream stream_;
};

}  // namespace dsv4
