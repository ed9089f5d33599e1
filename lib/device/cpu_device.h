// SPDX-License-Identifier: Apache-2.0
// The cpu device: host memory, and a stream with worker threads.
#pragma once

#include <cstring>

#include "lib/device/device.h"

namespace dsv4 {

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int threads) : stream_(threads) {}
  std::string name() const override;
  Stream& stream() override { return stream_; }
  // See CpuStream; 0 if all threads were started.
  int start_error() const { return stream_.start_error(); }
  int threads() const override { return stream_.threads(); }
  absl::StatusOr<Buffer> Allocate(int64_t bytes, absl::string_view purpose) override {
    return Buffer::AllocateHost(bytes, purpose);
  }
  absl::StatusOr<Buffer> AllocateHost(int64_t bytes, absl::string_view purpose) override {
    return Buffer::AllocateHost(bytes, purpose);
  }
  bool host_memory() const override { return true; }
  absl::Status Upload(std::byte* to, const std::byte* from, int64_t bytes) override {
    return Copy(to, from, bytes);
  }
  absl::Status Download(std::byte* to, const std::byte* from, int64_t bytes) override {
    return Copy(to, from, bytes);
  }
  absl::Status Copy(std::byte* to, const std::byte* from, int64_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
    return absl::OkStatus();
  }
  absl::Status Synchronize() override { return absl::OkStatus(); }

 private:
  CpuStream stream_;
};

}  // namespace dsv4
